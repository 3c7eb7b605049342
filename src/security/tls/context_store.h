#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "hawser/error.h"
#include "hawser/log.h"
#include "hawser/time.h"
#include "os/file_watch.h"
#include "security/tls/context.h"

namespace hawser::security::tls {

// The context in use, which is replaced when its files change. Thread-safe.
//
// Changes are noticed in two ways (docs/decisions/0058-*.md): a FileWatch notifies of them, and current() looks at the
// files once in an interval. With an interval of 0, current() looks each time, and nothing is watched. With `forever`,
// only reload() reads the files.
class ContextStore {
 public:
  // `noticed` is the notification of a FileWatch. It shall call check() on a thread that may block, and note_changed()
  // before that if the files have changed.
  ContextStore(ContextOptions options, Duration interval, FileWatch::Notified noticed);

  const ContextOptions& options() const noexcept { return options_; }
  // Loads the files for the first time. Later calls succeed at once.
  Result<void> prepare();
  Result<void> reload();
  // The context for a new connection. Null before prepare(). Checks the files if the interval has passed. May take as
  // long as reading files and a trial signature do, unless the files are watched and this is a loop. Other threads do
  // not wait for that.
  std::shared_ptr<const TlsContext> current();

  // The next check() reads the files, even if they look the same.
  void note_changed() noexcept { changed_.store(true); }
  // Reads the files if they have changed. Returns at once while another thread reads them; it checks again then.
  void check() noexcept;
  // Notifies after that time.
  void check_later(Duration delay) noexcept { watch_.call_later(delay); }
  // Stops a function that makes a trial signature, also later ones, and ends the notifications. Waits for one that
  // runs.
  void stop() noexcept;

  // Files are replaced one after the other. So files that cannot be used are reported only when they have not changed
  // for so long, or for the interval if that is shorter, and after 10 times as long if they change all the time.
  static constexpr Duration settle_time = std::chrono::seconds(1);

  // A line for the log about files that have changed, once. current() runs on threads that outlive the servers and
  // their logs, so the loops write the lines. Does not wait for current().
  struct Line {
    LogLevel level;
    std::string text;
  };
  std::optional<Line> take_line();

  std::uint64_t reloads() const noexcept { return reloads_.load(std::memory_order_relaxed); }
  std::uint64_t reloads_failed() const noexcept { return reloads_failed_.load(std::memory_order_relaxed); }
  // For tests: true if changes are notified.
  bool watches() const noexcept { return watch_.active(); }

 private:
  // A change that could not be used and has not been reported yet.
  struct Failure {
    Error error;
    std::int64_t first_ns = 0;  // The first of several in a row.
    std::int64_t report_ns = 0;
  };

  std::shared_ptr<const TlsContext> present() const;
  std::vector<std::string> files() const;
  std::string stamp() const;
  std::int64_t next_check() const noexcept;
  Result<void> load_locked();
  void check_locked();
  void watch_locked();
  void note_failure(Error error);
  void report_failure();
  std::string news_of_ocsp();
  void write_line(LogLevel level, std::string text);

  const ContextOptions options_;
  const Duration interval_;
  std::stop_source stop_;
  mutable std::mutex mutex_;                   // Never held while files are read.
  std::shared_ptr<const TlsContext> context_;  // Guarded by mutex_.
  std::int64_t next_check_ns_ = 0;             // Guarded by mutex_.
  std::atomic<bool> changed_{false};
  std::mutex load_mutex_;  // Held while files are read. Guards the following members.
  std::string stamp_;      // Describes the files when they were last read.
  // Why a token refused its PIN. prepare() does not try it again before the files change: wrong PINs lock a token.
  std::optional<Error> refused_pin_;
  std::optional<Failure> failure_;
  std::string old_ocsp_files_;  // As the log says.
  std::string unwatched_;       // Why files are not watched, as the log says.
  std::atomic<bool> line_waits_{false};
  std::mutex line_mutex_;
  std::optional<Line> line_;  // The latest one. Guarded by line_mutex_.
  std::atomic<std::uint64_t> reloads_{0};
  std::atomic<std::uint64_t> reloads_failed_{0};
  FileWatch watch_;
};

}  // namespace hawser::security::tls
