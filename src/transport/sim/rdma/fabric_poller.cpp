#include "transport/sim/rdma/fabric_poller.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "transport/sim/rdma/sim_device.h"

namespace hawser::transport {

std::size_t FabricPoller::wait(Duration timeout, Time& now) {
  const auto at_ns = [&](Time time) { return static_cast<double>((time - start_).count()); };
  const double until_ns = timeout == forever ? never_ns : at_ns(now_) + static_cast<double>(timeout.count());
  std::size_t delivered = 0;
  for (;;) {
    const double next_ns = std::min(fabric_->next_change_ns(), fabric_->next_notice_ns());
    const bool due = next_ns <= until_ns && next_ns != never_ns;
    // Whole nanoseconds, rounded up, so that due events have happened.
    const double target_ns = due ? std::max(std::ceil(next_ns), at_ns(now_)) : until_ns;
    if (target_ns == never_ns) break;
    now_ = start_ + Duration(static_cast<Duration::rep>(target_ns));
    fabric_->advance(target_ns);
    now = now_;
    delivered = fabric_->deliver_notices();
    if (delivered > 0 || !due) break;
  }
  now = now_;
  stalls_ = delivered == 0 && timeout == forever ? stalls_ + 1 : 0;
  if (stalls_ > stalls_max) throw std::logic_error("simulation is stuck: tasks wait, but no event is due");
  return delivered;
}

void FabricPoller::watch(int, exec::Watcher&) {
  throw std::logic_error("a simulated loop has no descriptors to watch");
}

}  // namespace hawser::transport
