#include "pipe/loop_turn.h"

#include "hawser/detail/loop_access.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"

namespace hawser::pipe {

void LoopTurn::begin(Loop& loop) noexcept {
  if (tick_ == detail::LoopAccess::tick_begin(loop)) return;
  tick_ = detail::LoopAccess::tick_begin(loop);
  begin_ = loop.poller().now();
}

bool LoopTurn::over(Loop& loop) noexcept {
  work_at_clock_ = work_ + clock_interval;
  begin(loop);
  return loop.poller().now() - begin_ >= time_max;
}

}  // namespace hawser::pipe
