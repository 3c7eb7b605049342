#include "rpc/port/call_cancelling.h"

#include <utility>

#include "hawser/detail/loop_access.h"
#include "rpc/port/port_session.h"

namespace hawser::rpc {

void CallCancelling::add(PortSession& session, const Error& why, std::vector<std::uint32_t> ids) {
  if (ids.empty()) return;
  batches_.push_back({&session, why, std::move(ids)});
  const Time tick = detail::LoopAccess::tick_begin(loop_);
  if (std::exchange(tick_, tick) != tick) cancelled_ = 0;
  cancel_some();
}

void CallCancelling::remove(const PortSession& session) noexcept {
  batches_.remove_if([&](const Batch& batch) { return batch.session == &session; });
}

void CallCancelling::begin_tick() noexcept {
  tick_ = detail::LoopAccess::tick_begin(loop_);
  cancelled_ = 0;
  cancel_some();
}

void CallCancelling::cancel_some() noexcept {
  if (std::exchange(working_, true)) return;  // A call that was stopped has ended another connection.
  while (!batches_.empty() && cancelled_ < calls_tick_max) {
    Batch& batch = batches_.front();
    if (batch.ids.empty()) {
      batches_.pop_front();
      continue;
    }
    const std::uint32_t id = batch.ids.back();
    batch.ids.pop_back();
    if (batch.session->cancel_call(id, batch.why)) ++cancelled_;
  }
  working_ = false;
  if (batches_.empty()) {
    timer_.stop();
  } else if (!timer_.running()) {
    timer_.start(loop_, loop_.now());
  }
}

}  // namespace hawser::rpc
