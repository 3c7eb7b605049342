#include "exec/blocked_turns.h"

#include <new>

namespace hawser::exec {

const std::string& BlockedTurns::begin_call(const std::string& name, Bytes metadata,
                                            detail::LoopWork::TraceOf trace_of) noexcept {
  TracedCall& call = calls_[now_];
  try {
    call.metadata.assign(as_text(metadata));
    call.name = name;
  } catch (const std::bad_alloc&) {
    return name;
  }
  call.trace_of = trace_of;
  return call.name;
}

std::optional<TraceContext> BlockedTurns::trace(const std::string* work) const {
  for (const TracedCall& call : calls_) {
    if (work == &call.name) return call.trace_of(as_bytes(call.metadata));
  }
  return std::nullopt;
}

}  // namespace hawser::exec
