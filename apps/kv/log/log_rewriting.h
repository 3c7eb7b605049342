#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "kv/log/log_pieces.h"

namespace hawser::kv {

struct LogRewritingOptions {
  // A file is rewritten when it has twice as many bytes as after the previous rewriting, and at least so many.
  std::size_t bytes_min = std::size_t{64} << 20;
  // A file that has failed is rewritten after the shorter pause, which is not 0, and then after pauses that double up
  // to the longer one. One that somebody has changed is rewritten at once, if the last repair has ended so long ago.
  std::chrono::milliseconds repair_pause_min{1000};
  std::chrono::milliseconds repair_pause_max{30'000};
};

// When a log file is rewritten, and how far that is: entries are added to the replacement step by step, then the writer
// completes it. One thread.
class LogRewriting {
 public:
  using Clock = std::chrono::steady_clock;

  // `bytes`: length of the file.
  LogRewriting(std::uint64_t bytes, const LogRewritingOptions& options) noexcept
      : options_(options), base_bytes_(bytes) {}

  // True if a file of this length has twice as many bytes as after the previous rewriting, or after the last failure of
  // one. If the file has failed: at the end of the pause.
  bool due(std::uint64_t file_bytes, Clock::time_point now) const noexcept {
    if (phase_ != Phase::none) return false;
    if (repairs()) return now >= repair_at_;
    return file_bytes >= options_.bytes_min && file_bytes / 2 >= base_bytes_;
  }
  void begin() noexcept {
    phase_ = Phase::entries;
    first_ = true;
    cursor = 0;
  }
  // All entries have been added: the writer receives the last part and completes the replacement.
  void finish() noexcept { phase_ = Phase::finishing; }
  // The replacement has become the file, which has so many bytes.
  void succeed(std::uint64_t file_bytes, Clock::time_point now) noexcept {
    end();
    if (repairs()) repaired_at_ = now;
    base_bytes_ = file_bytes;
    error_.clear();
    repair_pause_ = {};
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  // The replacement has failed. Another one is due when the file has doubled, or after a longer pause if it repairs.
  void fail(std::uint64_t file_bytes, std::string why, Clock::time_point now) noexcept {
    end();
    base_bytes_ = file_bytes;
    error_ = std::move(why);
    if (repairs()) pause(now);
  }
  // The file has failed, and a replacement of it with it. Only another one that succeeds ends that. `changed`: the disk
  // works, and somebody has changed the file.
  void repair(Clock::time_point now, bool changed) noexcept {
    end();
    repair_pause_ = {};
    pause(now);
    if (changed && (!repaired_at_ || now - *repaired_at_ >= options_.repair_pause_min)) repair_at_ = now;
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
  const std::string& error() const noexcept { return error_; }  // Why the last one failed; empty: it has not.
  bool repairs() const noexcept { return repair_pause_ != repair_pause_.zero(); }  // The file has failed.
  // True for the first part of a replacement that is passed to the writer.
  bool take_first() noexcept { return std::exchange(first_, false); }
  std::uint64_t base_bytes() const noexcept { return base_bytes_; }
  // Number of replacements. Any thread.
  std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

  std::uint64_t cursor = 0;  // The scan of the entries continues here.
  LogPieces pieces;          // Bytes of the replacement that the writer does not have yet.

 private:
  enum class Phase : std::uint8_t { none, entries, finishing };

  void end() noexcept {
    abandon();
    phase_ = Phase::none;
  }
  void pause(Clock::time_point now) noexcept {
    repair_pause_ = std::clamp(2 * repair_pause_, options_.repair_pause_min, options_.repair_pause_max);
    repair_at_ = now + repair_pause_;
  }

  const LogRewritingOptions options_;
  std::uint64_t base_bytes_;  // Length of the file after the previous rewriting.
  Phase phase_ = Phase::none;
  bool first_ = false;
  std::string error_;
  std::chrono::milliseconds repair_pause_{0};  // The last one. 0: the file has not failed.
  Clock::time_point repair_at_{};
  std::optional<Clock::time_point> repaired_at_;  // The end of the last repair.
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace hawser::kv
