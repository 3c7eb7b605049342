#include "rpc/port/call_cancelling.h"

#include <utility>

#include "hawser/detail/loop_access.h"
#include "rpc/port/port_session.h"

namespace hawser::rpc {

void CallCancelling::add(PortSession& session, const Error& why, std::vector<std::uint32_t> ids) {
  if (ids.empty()) return;
  orders_.push_back({&session, why, std::move(ids)});
  const Time tick = detail::LoopAccess::tick_begin(loop_);
  if (std::exchange(tick_, tick) != tick) cancelled_ = 0;
  work();
}

void CallCancelling::remove(const PortSession& session) noexcept {
  orders_.remove_if([&](const Order& order) { return order.session == &session; });
}

void CallCancelling::run() noexcept {
  tick_ = detail::LoopAccess::tick_begin(loop_);
  cancelled_ = 0;
  work();
}

void CallCancelling::work() noexcept {
  if (std::exchange(working_, true)) return;  // A call that was stopped has ended another connection.
  while (!orders_.empty() && cancelled_ < calls_tick_max) {
    Order& order = orders_.front();
    if (order.ids.empty()) {
      orders_.pop_front();
      continue;
    }
    const std::uint32_t id = order.ids.back();
    order.ids.pop_back();
    if (order.session->cancel_call(id, order.why)) ++cancelled_;
  }
  working_ = false;
  if (orders_.empty()) {
    timer_.stop();
  } else if (!timer_.running()) {
    timer_.start(loop_, loop_.now());
  }
}

}  // namespace hawser::rpc
