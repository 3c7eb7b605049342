#pragma once

#include <functional>
#include <string_view>

namespace hawser {

enum class LogLevel : unsigned char { debug, info, warning, error };

// Where a Server, Client or Loop writes what people should read. Called on the thread that has something to say;
// must not block for long. `component` is a short name such as "exec" or "rpc".
using LogSink = std::function<void(LogLevel level, std::string_view component, std::string_view text)>;

// The default: warnings and errors to stderr, one line each.
LogSink stderr_log(LogLevel least = LogLevel::warning);
// Says nothing.
LogSink no_log();

std::string_view to_string(LogLevel level) noexcept;

}  // namespace hawser
