#include "hawser/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/decimal_text.h"
#include "base/log_output.h"

namespace hawser {
namespace {

bool is_control(char one) noexcept { return static_cast<unsigned char>(one) < 0x20 || one == 0x7f; }

std::string line_of(LogLevel level, std::string_view component, std::string_view text) {
  std::string line = "hawser ";
  line.append(to_string(level)).append(" [").append(component).append("] ");
  const std::size_t begin = line.size();
  line.append(text);
  // A peer's text could forge lines, or control a terminal.
  std::replace_if(line.begin() + static_cast<std::ptrdiff_t>(begin), line.end(), is_control, '?');
  line += '\n';
  return line;
}

}  // namespace

std::string_view to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
  }
  return "unknown";
}

void LogSink::Target::log(LogLevel level, std::string_view component, std::string_view text) noexcept {
  if (const unsigned before = lost.exchange(0, std::memory_order_relaxed); before != 0) [[unlikely]] {
    try {
      // Lines of any level: a sink that writes errors only must not hide this.
      write(LogLevel::error, "log", "the log lost " + count_text(before, "line") + ": it threw, or had no memory");
    } catch (...) {
      return lose(before + 1);
    }
  }
  try {
    write(level, component, text);
  } catch (...) {
    lose(1);
  }
}

LogSink stderr_log(LogLevel least) {
  return [least, output = std::make_shared<LineOutput>(STDERR_FILENO)](LogLevel level, std::string_view component,
                                                                       std::string_view text) {
    if (level < least) return;
    output->write(line_of(level, component, text), [](std::uint64_t lost) {
      return line_of(LogLevel::warning, "log", "stderr did not take " + count_text(lost, "line"));
    });
  };
}

LogSink no_log() { return {}; }

}  // namespace hawser
