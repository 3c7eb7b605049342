#include "rpc/client/call_deadlines.h"

#include <memory>

#include "exec/loop_work.h"

namespace hawser::detail {

// Calls of one turn have one deadline, and turns do not overlap, so the ends are in the order of the list, too.
Time CallDeadlines::end_of(const CallOperation& call) const noexcept {
  return call.deadline() + LoopWork::turn_length(loop_, call.deadline() - timeout_);
}

void CallDeadlines::on_time() noexcept {
  if (first_ == nullptr) return;
  // The end of a call may end the session, which owns this object.
  const std::shared_ptr<CallChannel> session = first_->channel_->weak().lock();
  while (first_ != nullptr && end_of(*first_) <= loop_.now()) {
    CallOperation& call = *first_;
    remove(call);
    call.on_deadline();
  }
  if (first_ != nullptr) timer_.start(loop_, end_of(*first_));
}

}  // namespace hawser::detail
