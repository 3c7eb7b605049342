#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kv/log/log_pieces.h"

namespace hawser::kv {

// When a log file is rewritten, and how far that is: entries are added to the replacement step by step, then the writer
// completes it. One thread.
class LogRewriting {
 public:
  // `bytes`: length of the file. It is not rewritten before it has `bytes_min`.
  LogRewriting(std::uint64_t bytes, std::size_t bytes_min) noexcept : bytes_min_(bytes_min), base_bytes_(bytes) {}

  // True if a file of this length has twice as many bytes as after the previous rewriting, or after the last failure.
  bool due(std::uint64_t file_bytes) const noexcept {
    return phase_ == Phase::none && file_bytes >= bytes_min_ && file_bytes / 2 >= base_bytes_;
  }
  void begin() noexcept {
    phase_ = Phase::entries;
    first_ = true;
    cursor = 0;
  }
  // All entries have been added: the writer receives the last part and completes the replacement.
  void finish() noexcept { phase_ = Phase::finishing; }
  // The replacement has become the file, which has so many bytes.
  void succeed(std::uint64_t file_bytes) noexcept {
    phase_ = Phase::none;
    base_bytes_ = file_bytes;
    failed_ = false;
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  // It is tried again when the file has doubled.
  void fail(std::uint64_t file_bytes) noexcept {
    abandon();
    phase_ = Phase::none;
    base_bytes_ = file_bytes;
    failed_ = true;
  }
  // Adds no further entries. A replacement that the writer completes is not affected.
  void abandon() noexcept {
    if (phase_ == Phase::entries) phase_ = Phase::none;
    first_ = false;
    pieces.clear();
  }

  // Entries are being added, and each change is added behind them.
  bool adds_entries() const noexcept { return phase_ == Phase::entries; }
  bool finishing() const noexcept { return phase_ == Phase::finishing; }
  bool running() const noexcept { return phase_ != Phase::none; }
  bool failed() const noexcept { return failed_; }  // The last one.
  // True for the first part of a replacement that is passed to the writer.
  bool take_first() noexcept { return std::exchange(first_, false); }
  std::uint64_t base_bytes() const noexcept { return base_bytes_; }
  // Number of replacements. Any thread.
  std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

  std::uint64_t cursor = 0;  // The scan of the entries continues here.
  LogPieces pieces;          // Bytes of the replacement that the writer does not have yet.

 private:
  enum class Phase : std::uint8_t { none, entries, finishing };

  const std::size_t bytes_min_;
  std::uint64_t base_bytes_;  // Length of the file after the previous rewriting.
  Phase phase_ = Phase::none;
  bool first_ = false;
  bool failed_ = false;
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace hawser::kv
