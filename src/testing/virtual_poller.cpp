#include "testing/virtual_poller.h"

#include <stdexcept>
#include <string>

#include "hawser/testing/simulation.h"
#include "testing/seconds.h"

namespace hawser::testing {

std::size_t VirtualPoller::wait(Duration timeout, Time& now) {
  if (++turns_ > turns_max_) {
    throw RunFailed("the loop has made more than " + std::to_string(turns_max_) + " turns by " + seconds(elapsed()) +
                    " (SimulationOptions::turns_max): a coroutine may run without a pause");
  }
  if (timeout == forever) {
    throw RunFailed("stuck at " + seconds(elapsed()) +
                    ": the body of the test waits, and nothing can happen any more that would resume it");
  }
  if (timeout > time_max_ - elapsed()) {
    throw RunFailed("the body of the test has not ended after " + seconds(time_max_) +
                    " of virtual time (SimulationOptions::time_max)");
  }
  now_ += timeout;
  now = now_;
  return 0;
}

void VirtualPoller::watch(int, exec::Watcher&) {
  throw std::logic_error("hawser: a simulated loop has no descriptors: use addresses of its network");
}

}  // namespace hawser::testing
