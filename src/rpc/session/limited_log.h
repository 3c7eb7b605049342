#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "base/decimal_text.h"
#include "hawser/loop.h"

namespace hawser::rpc {

// A log whose lines peers can cause as often as they like. Writes at most lines_max lines of each level in an interval;
// the next line states how many were omitted. Loop's thread only.
class LimitedLog {
 public:
  static constexpr unsigned lines_max = 20;
  static constexpr Duration interval = std::chrono::seconds(1);

  // Writes the text that `text()` returns. It is not called for an omitted line. A line whose text or whose writing
  // throws, for lack of memory, is omitted.
  template <class Text>
  void write(Loop& loop, LogLevel level, Text text) noexcept {
    if (!loop.options().log) return;
    Window& window = windows_[static_cast<std::size_t>(level)];
    if (loop.now() >= window.end) {
      window.end = loop.after(interval);
      window.lines = 0;
    }
    if (window.lines == lines_max) {
      ++window.omitted;
      return;
    }
    ++window.lines;
    try {
      std::string line = text();
      if (window.omitted != 0) line += " (without " + count_text(window.omitted, "similar line") + " before this)";
      window.omitted = 0;
      loop.log(level, "rpc", line);
    } catch (const std::exception&) {
      ++window.omitted;
    }
  }

 private:
  struct Window {
    Time end{};  // End of the interval to which `lines` belongs.
    unsigned lines = 0;
    std::uint64_t omitted = 0;
  };
  std::array<Window, 4> windows_{};  // By LogLevel.
};

}  // namespace hawser::rpc
