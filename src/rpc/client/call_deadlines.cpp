#include "rpc/client/call_deadlines.h"

#include <memory>

namespace hawser::detail {

void CallDeadlines::on_time() noexcept {
  if (first_ == nullptr) return;
  // The end of a call may end the session, which owns this object.
  const std::shared_ptr<CallChannel> session = first_->channel_->weak().lock();
  while (first_ != nullptr && first_->deadline() <= loop_.now()) {
    CallOperation& call = *first_;
    remove(call);
    call.on_deadline();
  }
  if (first_ != nullptr) timer_.start(loop_, first_->deadline());
}

}  // namespace hawser::detail
