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
#include "kv/log/log_file.h"
#include "kv/log/log_format.h"
#include "kv/log/log_pieces.h"
#include "kv/log/log_replacement.h"

namespace hawser::kv {

// When what was written reaches the disk.
enum class LogSync : std::uint8_t {
  always,  // Before a write is answered.
  second,  // At the latest a second later.
  never,   // When the kernel writes it.
};

// Writes one log file on a thread of its own, and replaces it by a shorter one. push(), progress() and finish() are
// called by one thread.
class LogWriter {
 public:
  // push() waits while so many bytes, or the less that the constructor was given, are queued or being written.
  static constexpr std::size_t held_bytes_max = std::size_t{64} << 20;
  static constexpr std::chrono::milliseconds sync_interval{1000};
  // The longest time without a look at the file, if the constructor was given no other: somebody may have cut or
  // removed it.
  static constexpr std::chrono::milliseconds check_interval{100};

  struct Progress {
    std::uint64_t durable = 0;  // Bytes passed to push() that are durable. With LogSync::always only.
    std::uint64_t file_bytes = 0;
    std::uint64_t number = 0;            // In the name of the file.
    bool replaced = false;               // The file has been replaced since the last call.
    std::string replacement_error = {};  // Why a replacement has failed since the last call; empty: none has.
    std::string error = {};              // Why the file has failed; empty: it has not.
    bool changed = false;                // The error: somebody has changed the file. The disk works.
  };

  // Appends to `file`, which has `bytes` bytes, begins with `header` and is at `path`. `advanced` is called by the
  // thread when progress() has something new.
  LogWriter(Descriptor file, std::filesystem::path path, std::uint64_t bytes, const LogHeader& header, LogSync sync,
            std::function<void()> advanced, std::size_t held_most = held_bytes_max,
            std::chrono::milliseconds look_interval = check_interval);
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;
  ~LogWriter() { finish(); }

  // A part of a replacement. `first` begins it, and ends an earlier one. `last` completes it; push() must not be called
  // until that has been reported, or Progress::error: then it drops a `last` that the thread has not taken. After a
  // failure, parts are dropped until the first one of another replacement.
  // After Progress::error the contents of the file are not known, and `bytes` are dropped. A replacement that has what
  // all bytes before it say ends the error.
  struct Part {
    bool first = false;
    bool last = false;
  };
  // `bytes` are written to the file, and `replacement` to the file that will replace it, at `path` or at a path with a
  // larger number: see unused_log_path().
  void push(LogPieces& bytes, LogPieces& replacement, const std::filesystem::path& path, Part part);
  std::size_t held_most() const noexcept { return held_most_; }
  // Less than half of that is queued or being written: push() does not wait.
  bool has_room();
  Progress progress();
  // Waits until a replacement has ended.
  void wait_for_replacement();
  // Returns when everything that was passed to push() is on the disk; with LogSync::never, when the kernel has it,
  // unless `finally`; or after an error.
  void wait_for_disk(bool finally = false);
  // Writes what is queued, makes it durable and ends the thread.
  void finish();

 private:
  // The arguments of push() that the thread has not taken.
  struct Work {
    LogPieces bytes = {};
    LogPieces replacement = {};
    std::filesystem::path path = {};
    Part part = {};  // The bytes of `replacement` are this part of it.
    bool empty() const noexcept { return bytes.empty() && replacement.empty(); }
  };

  void run();
  bool has_work() const noexcept {
    return !queued_.empty() || queued_.part.last || ending_ || disk_waits_ != disk_waits_done_;
  }
  // When the thread looks at the file, or syncs it, without work.
  std::chrono::steady_clock::time_point next_look() const noexcept;
  // With LogSync::second: the last sync is so long ago that what is written now is synced.
  bool sync_due() const noexcept;
  Result<void> write(LogPieces& bytes, bool synced);
  Result<void> write_pieces(LogFile& file, LogPieces& bytes);
  Result<bool> replace(Work& work);

  const LogSync sync_;
  const std::size_t held_most_;
  const std::chrono::milliseconds look_interval_;
  const std::function<void()> advanced_;

  // Used by the thread.
  LogFile file_;
  LogReplacement replacement_;
  std::uint64_t pushed_ = 0;  // Bytes of push() that were written, or dropped after an error.
  std::chrono::steady_clock::time_point last_sync_{};
  std::chrono::steady_clock::time_point last_check_{};
  bool changed_by_others_ = false;  // The last check of the file has failed.

  std::mutex mutex_;  // Guards the members below.
  std::condition_variable changed_;
  Work queued_;
  std::size_t writing_ = 0;  // Bytes that the thread has taken from it and not written.
  bool replacing_ = false;   // From push() with `last` until the replacement has ended.
  bool ending_ = false;
  std::uint64_t disk_waits_ = 0;  // Calls of wait_for_disk(), and those that need not wait any more.
  std::uint64_t disk_waits_done_ = 0;
  bool finally_ = false;  // They wait for a sync, whatever the option says.
  Progress progress_;
  std::thread thread_;  // Declared last: it uses the other members.
};

}  // namespace hawser::kv
