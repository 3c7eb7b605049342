#pragma once

#include <optional>
#include <string>

#include "hawser/bytes.h"
#include "hawser/loop.h"
#include "hawser/time.h"

namespace hawser {
struct TraceContext;
}

namespace hawser::detail {

// The work of a loop: the watch for work that blocks it (LoopOptions::blocked_max), and its execution on behalf of
// another event loop. Loop's thread only.
struct LoopWork {
  // Does the same as LoopAccess::set_work() for a call with a trace, which the warning has then. Copies `name` and
  // `metadata`. `trace_of` reads the trace when it is needed. Without memory, the trace is not known.
  using TraceOf = std::optional<TraceContext> (*)(Bytes metadata);
  static void set_traced_work(Loop& loop, const std::string& name, Bytes metadata, TraceOf trace_of) noexcept;
  // Takes the place of LoopOptions::blocked_max.
  static void set_blocked_max(Loop& loop, Duration blocked_max) noexcept;
  // How old Loop::now() is, if this is LongTurns::long_min or more, else zero. Reads the clock.
  static Duration lateness(const Loop& loop) noexcept;
  // LongTurns::length() of the loop.
  static Duration turn_length(const Loop& loop, Time begin) noexcept;
  // For EmbeddedLoop: executes at most `ticks_max` ticks with work, and never waits. Returns the time until the next
  // timer, or `forever`; then whatever gives the loop work wakes its poller. Returns zero if work is left.
  static Duration run_ready(Loop& loop, unsigned ticks_max);
};

}  // namespace hawser::detail
