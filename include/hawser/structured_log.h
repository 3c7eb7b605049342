#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/error.h"
#include "hawser/log.h"
#include "hawser/trace.h"

// Sinks for the logs of programs: lines with the time and the trace, as text, as JSON, or for systemd's journal.
// Component hawser::observe. docs/operations.md.
//
//   hawser::RecentLog log(hawser::rate_limited(hawser::json_log(hawser::LogLevel::debug)), hawser::LogLevel::info);
//   options.loop.log = log.sink();
//   ...
//   std::string handler(hawser::Context& context) {
//     const hawser::LogSink traced = hawser::with_trace(log.sink(), trace_of(context.metadata()));
//     traced(hawser::LogLevel::warning, "shop", "no rope is left");
//   }
namespace hawser {

// One line of a log. The texts may quote a peer: whoever writes them escapes them.
struct LogRecord {
  std::chrono::system_clock::time_point at{};
  LogLevel level = LogLevel::info;
  std::string_view component = {};
  std::string_view text = {};
  const TraceContext* trace = nullptr;  // Null: the line belongs to no call.
};

// Longer texts are cut, and end with "...".
inline constexpr std::size_t log_text_bytes_max = 8 * 1024;

// A line with its end, as valid UTF-8. Control characters and bytes that are not UTF-8 are written as '?'.
//   2026-11-23T12:00:00.000000Z warning [rpc] text trace_id=4bf9... span_id=00f0...
std::string text_line(const LogRecord& record);
// A JSON object with its end of line: time, level, component, message, and trace_id and span_id if there is a trace.
// Control characters are escaped; bytes that are not UTF-8 are U+FFFD.
std::string json_line(const LogRecord& record);
// A datagram of the journal's native protocol: MESSAGE, PRIORITY, SYSLOG_IDENTIFIER, HAWSER_COMPONENT, and TRACE_ID and
// SPAN_ID if there is a trace. Line feeds and tabs of the text are kept; else as text_line().
std::string journal_entry(const LogRecord& record, std::string_view identifier);

// Write lines of `least` and above to a file descriptor that stays open, stderr by default, each line with one write()
// if the kernel takes it whole. Lines of the component "audit" have the level info. The sinks do not wait for the
// reader of a pipe, socket or terminal, and raise no SIGPIPE: lines that the descriptor does not take are lost, and
// their number is in a line of its own when it takes lines again.
LogSink text_log(LogLevel least = LogLevel::info, int descriptor = 2);
LogSink json_log(LogLevel least = LogLevel::info, int descriptor = 2);

struct JournalOptions {
  LogLevel least = LogLevel::info;
  std::string identifier = "hawser";  // SYSLOG_IDENTIFIER: journalctl -t hawser
  std::string socket = "/run/systemd/journal/socket";
};
// Sends to systemd's journal. It never blocks: lines that the journal does not accept are lost, and their number is in
// a line of its own when the journal accepts lines again, also after it was restarted. Fails with `unavailable` if
// nothing listens at the socket, and with `invalid_argument` if the path is empty or too long for a socket.
Result<LogSink> journal_log(JournalOptions options = {});

// Lines to this sink belong to a call: sinks of this header show its trace. Without a trace this is `sink` itself.
// Coroutines of many calls share a thread, so a sink does not know by itself which of them logs.
LogSink with_trace(LogSink sink, std::optional<TraceContext> trace);
// The trace of the line that this thread is writing, for sinks of applications. Null if there is none. Valid until the
// sink returns.
const TraceContext* trace_of_line() noexcept;

// Lines of one place share a limit. A place is the level, the component, and the text up to its first digit or quote
// (at most 48 bytes), which the lines of one statement have in common. There are 128 places; others share with them.
struct LogRateLimit {
  unsigned lines_per_place = 10;  // In a second.
  unsigned lines = 1'000;         // In a second, of all places together.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};
// Passes on the lines within the limit. The first line of a later second, of any place, and the end of the last copy of
// the sink, write for each place that lost lines: N more suppressed: "beginning of the text...". Throws
// std::invalid_argument if a limit is 0.
LogSink rate_limited(LogSink next, LogRateLimit limit = {});

}  // namespace hawser
