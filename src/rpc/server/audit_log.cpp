#include "rpc/server/audit_log.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "base/decimal_text.h"
#include "base/escaped_text.h"
#include "base/line_trace.h"
#include "hawser/interceptor.h"
#include "hawser/log.h"
#include "hawser/loop.h"
#include "hawser/trace.h"

namespace hawser::rpc {
namespace {

constexpr std::size_t method_text_bytes_max = 128;
constexpr std::size_t peer_text_bytes_max = 256;  // A client chooses the name of its Unix socket.
constexpr std::size_t reason_text_bytes_max = 256;

}  // namespace

void AuditLog::write(IncomingCall& call, Verdict verdict, std::string_view reason) {
  Counts& counts = counts_[static_cast<std::size_t>(verdict)];
  const auto second = std::chrono::duration_cast<std::chrono::seconds>(call.loop().now().time_since_epoch()).count();
  if (!counts.lines.take(second, lines_per_second_max_)) {
    counts.omitted.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  std::string line = verdict == Verdict::allowed ? "allowed " : "refused ";
  append_escaped(line, call.method(), method_text_bytes_max);
  line += " over ";
  line += call.protocol();
  line += " by " + call.identity().text() + " at ";
  append_escaped(line, call.peer(), peer_text_bytes_max);
  if (!reason.empty()) {
    line += ": ";
    append_escaped(line, reason, reason_text_bytes_max);
  }
  const std::uint64_t omitted = counts.omitted.exchange(0, std::memory_order_relaxed);
  if (omitted != 0) line += " (without " + count_text(omitted, "line") + " before this)";
  const std::optional<TraceContext> trace = trace_of(call.metadata());
  const LineTrace traced(trace ? &*trace : nullptr);
  call.loop().log(LogLevel::info, "audit", line);
}

}  // namespace hawser::rpc
