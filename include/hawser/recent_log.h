#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hawser/log.h"

namespace hawser {

// Keeps the latest lines of a log for the page /log, and passes on those of a level that can be changed at run time.
// Component hawser::observe. A value: copies share the lines. Any thread.
//
//   hawser::RecentLog log;
//   options.loop.log = log.sink();
//   hawser::enable_pages(server, {.log = log});
class RecentLog {
 public:
  static constexpr std::size_t lines_max_default = 500;
  static constexpr std::size_t line_bytes_max = 1024;  // Longer texts are cut.

  // Lines of `least` and above go to `next`. Lines of LogLevel::info and above, or of `least` if that is lower, are
  // kept, at most `lines_max` of them.
  explicit RecentLog(LogSink next = stderr_log(LogLevel::debug), LogLevel least = LogLevel::warning,
                     std::size_t lines_max = lines_max_default);

  LogSink sink() const;
  LogLevel level() const noexcept;
  void set_level(LogLevel least) noexcept;

  struct Line {
    std::chrono::system_clock::time_point at;
    LogLevel level = LogLevel::info;
    std::string component;
    std::string text;
    std::string trace_id = {};  // The trace of the call to which the line belongs; empty: none.
  };
  // The newest first.
  std::vector<Line> lines(std::size_t count_max) const;
  // Lines that were kept and have been replaced by newer ones.
  std::uint64_t dropped() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hawser
