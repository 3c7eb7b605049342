#include "hawser/log.h"

#include <cstdio>

namespace hawser {

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
    const std::string_view name = to_string(level);
    std::fprintf(stderr, "hawser %.*s [%.*s] %.*s\n", static_cast<int>(name.size()), name.data(),
                 static_cast<int>(component.size()), component.data(), static_cast<int>(text.size()), text.data());
  };
}

LogSink no_log() { return {}; }

}  // namespace hawser
