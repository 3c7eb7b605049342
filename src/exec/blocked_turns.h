#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "exec/long_turns.h"
#include "exec/loop_work.h"
#include "hawser/bytes.h"
#include "hawser/time.h"
#include "hawser/trace.h"

namespace hawser::exec {

// Decides which turns of a loop are reported as blocked, at most one a second, and remembers whose call made one long.
// Loop's thread only.
class BlockedTurns {
 public:
  explicit BlockedTurns(Duration limit) noexcept { set_limit(limit); }

  // LoopOptions::blocked_max.
  void set_limit(Duration limit) noexcept {
    limit_ = limit;
    noted_min_ = std::min(limit, LongTurns::long_min);
  }
  Duration limit() const noexcept { return limit_; }
  // True for a turn that is reported or remembered.
  bool notes(Duration turn) const noexcept { return turn >= noted_min_; }
  // True if a turn that ends now is reported.
  bool reports(Duration turn, Time now) noexcept {
    if (turn <= limit_ || now < next_report_) return false;
    next_report_ = now + std::chrono::seconds(1);
    return true;
  }

  // A call with a trace begins in this turn. Returns the name of its work, which is valid until the end of the next
  // turn; without memory `name` itself, which has no trace then.
  const std::string& begin_call(const std::string& name, Bytes metadata, detail::LoopWork::TraceOf trace_of) noexcept;
  void end_turn() noexcept { now_ ^= 1U; }
  // The trace of the call of that name, which begin_call() returned in this turn or in the one before.
  std::optional<TraceContext> trace(const std::string* work) const;

 private:
  struct TracedCall {
    std::string name;
    std::string metadata;
    detail::LoopWork::TraceOf trace_of = nullptr;
  };

  Duration limit_{};
  Duration noted_min_{};
  Time next_report_{};
  std::array<TracedCall, 2> calls_;  // The last ones of this turn and of the one before.
  std::size_t now_ = 0;              // The place of this turn.
};

}  // namespace hawser::exec
