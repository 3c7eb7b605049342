#pragma once

#include "hawser/transport/poller.h"

namespace hawser::exec {

// Virtual time: waiting moves the clock and nothing else does, so that a run depends on its seed alone. Everything
// that happens in a simulation is a timer. A wait without an end means that nothing can happen any more.
class SimPoller final : public Poller {
 public:
  std::string_view name() const noexcept override { return "simulated"; }
  Time now() const noexcept override { return now_; }
  std::size_t wait(Duration timeout, Time& now) override;
  void wake() noexcept override {}
  bool real_time() const noexcept override { return false; }
  // There are no descriptors in a simulation.
  void watch(int fd, Watcher& watcher) override;
  void unwatch(int, Watcher&) noexcept override {}

  // Calls of wait() that had no end: the simulated system is at rest. One that never changes any more is stuck.
  std::size_t stalls() const noexcept { return stalls_; }

 private:
  Time now_{std::chrono::seconds(1)};
  std::size_t stalls_ = 0;
};

}  // namespace hawser::exec
