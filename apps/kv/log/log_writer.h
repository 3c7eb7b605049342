#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/descriptor.h"
#include "hawser/error.h"
#include "kv/log/log_format.h"
#include "kv/log/log_pieces.h"

namespace hawser::kv {

// When what was written reaches the disk.
enum class LogSync : std::uint8_t {
  always,  // Before a write is answered.
  second,  // At the latest a second later.
  never,   // When the kernel writes it.
};

// Makes a file that is open at its end; one that exists is removed before.
Result<Descriptor> create_log_file(const std::filesystem::path& path);
// Writes all of `bytes`. An error names the file.
Result<void> write_all(int file, std::string_view bytes, const std::filesystem::path& path);
// Makes what was written to a file, or the names in a folder, durable.
Result<void> sync_file(int file, const std::filesystem::path& path);
Result<void> sync_folder(const std::filesystem::path& path);

// Writes one log file on a thread of its own, and replaces it by a shorter one. push(), replaced() and finish() are
// called by one thread.
class LogWriter {
 public:
  // push() waits while so many bytes, or the less that the constructor was given, are queued or being written.
  static constexpr std::size_t held_bytes_max = std::size_t{64} << 20;
  static constexpr std::chrono::milliseconds sync_interval{1000};

  struct Progress {
    std::uint64_t durable = 0;  // Bytes passed to push() that are durable. With LogSync::always only.
    std::uint64_t file_bytes = 0;
    bool replaced = false;  // The file has been replaced since the last call.
    bool replacement_failed = false;
    std::string error = {};  // Nothing more is written.
  };

  // Appends to `file`, which has `bytes` bytes, begins with `header` and is at `path`. `advanced` is called by the
  // thread when progress() has something new.
  LogWriter(Descriptor file, std::filesystem::path path, std::uint64_t bytes, const LogHeader& header, LogSync sync,
            std::function<void()> advanced, std::size_t held_most = held_bytes_max);
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;
  ~LogWriter() { finish(); }

  // A part of a replacement. `first` begins it, and ends an earlier one. `last` completes it; push() must not be called
  // until that has been reported. After a failure, parts are dropped until the first one of another replacement.
  struct Part {
    bool first = false;
    bool last = false;
  };
  // `bytes` are written to the file, and `replacement` to the file that will replace it at `path`.
  void push(LogPieces& bytes, LogPieces& replacement, const std::filesystem::path& path, Part part);
  std::size_t held_most() const noexcept { return held_most_; }
  Progress progress();
  // Waits until a replacement has ended.
  void wait_for_replacement();
  // Returns when everything that was passed to push() is on the disk; with LogSync::never, when the kernel has it; or
  // after an error.
  void wait_for_disk();
  // Writes what is queued, makes it durable and ends the thread.
  void finish();

 private:
  void run();
  Result<void> write(LogPieces& bytes, bool marker_alone);
  Result<void> write_pieces(int file, LogPieces& bytes, const std::filesystem::path& path);
  Result<void> sync();
  Result<bool> replace(LogPieces& bytes, const std::filesystem::path& path, Part part);
  void discard_replacement() noexcept;

  const LogSync sync_;
  const std::size_t held_most_;
  const std::function<void()> advanced_;

  // Used by the thread.
  Descriptor file_;
  std::filesystem::path path_;
  std::uint64_t bytes_;       // Length of the file.
  LogHeader header_;          // Its header.
  bool unsynced_ = false;     // Something was written since the last sync.
  bool marker_due_ = false;   // The next write begins with a record that says what has been synced.
  std::uint64_t pushed_ = 0;  // Bytes of push() that were written.
  std::chrono::steady_clock::time_point last_sync_{};
  Descriptor replacement_;
  std::filesystem::path replacement_path_;
  std::uint64_t replacement_bytes_ = 0;
  LogHeader replacement_header_;
  bool broken_ = false;  // Nothing more can be written.

  std::mutex mutex_;  // Guards the members below.
  std::condition_variable changed_;
  LogPieces queued_;
  LogPieces queued_replacement_;
  std::size_t writing_ = 0;  // Bytes that the thread has taken from these and not written.
  std::filesystem::path queued_path_;
  Part part_ = {};          // The queued bytes of a replacement are this part of it.
  bool replacing_ = false;  // From push() with `last` until the replacement has ended.
  bool ending_ = false;
  std::uint64_t disk_waits_ = 0;  // Calls of wait_for_disk(), and those that need not wait any more.
  std::uint64_t disk_waits_done_ = 0;
  Progress progress_;
  std::thread thread_;  // Declared last: it uses the other members.
};

}  // namespace hawser::kv
