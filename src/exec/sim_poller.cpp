#include "exec/sim_poller.h"

#include <stdexcept>

namespace hawser::exec {

// More idle waits than this in a row of virtual time mean that the simulation cannot continue.
static constexpr std::size_t stalls_max = 10'000;

std::size_t SimPoller::wait(Duration timeout, Time& now) {
  if (timeout != forever) {
    now_ += timeout;
    now = now_;
    if (timeout != Duration::zero()) stalls_ = 0;
    return 0;
  }
  now = now_;
  if (++stalls_ > stalls_max) throw std::logic_error("simulation is stuck: tasks wait, but no event is due");
  return 0;
}

void SimPoller::watch(int, Watcher&) { throw std::logic_error("a simulated loop has no descriptors to watch"); }

}  // namespace hawser::exec
