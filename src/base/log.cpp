#include "hawser/log.h"

#include <algorithm>
#include <cstdio>
#include <string>

namespace hawser {
namespace {

bool is_control(char one) noexcept { return static_cast<unsigned char>(one) < 0x20 || one == 0x7f; }

void write_line(LogLevel level, std::string_view component, std::string_view text) {
  const std::string_view name = to_string(level);
  std::fprintf(stderr, "hawser %.*s [%.*s] %.*s\n", static_cast<int>(name.size()), name.data(),
               static_cast<int>(component.size()), component.data(), static_cast<int>(text.size()), text.data());
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

LogSink stderr_log(LogLevel least) {
  return [least](LogLevel level, std::string_view component, std::string_view text) {
    if (level < least) return;
    if (std::ranges::none_of(text, is_control)) return write_line(level, component, text);
    // A peer's text could forge lines, or control a terminal.
    std::string printable(text);
    std::ranges::replace_if(printable, is_control, '?');
    write_line(level, component, printable);
  };
}

LogSink no_log() { return {}; }

}  // namespace hawser
