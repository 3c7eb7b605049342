#include "pipe/loop_turn.h"

#include "hawser/loop.h"
#include "hawser/transport/poller.h"

namespace hawser::pipe {

void LoopTurn::begin(Loop& loop) noexcept {
  if (tick_ == loop.now()) return;
  tick_ = loop.now();
  begin_ = loop.poller().now();
}

bool LoopTurn::over(Loop& loop) noexcept {
  work_at_clock_ = work_ + clock_interval;
  begin(loop);
  return loop.poller().now() - begin_ >= time_max;
}

}  // namespace hawser::pipe
