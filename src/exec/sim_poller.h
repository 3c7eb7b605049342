#pragma once

#include <cstdint>
#include <optional>

#include "hawser/transport/poller.h"

namespace hawser::exec {

// Virtual time: only waiting moves the clock, so that a run depends on its seed alone. Everything that happens in a
// simulation is a timer. A wait without an end means that nothing can happen any more.
class SimPoller final : public Poller {
 public:
  explicit SimPoller(std::uint64_t seed = 0) noexcept : seed_(seed) {}

  std::string_view name() const noexcept override { return "simulated"; }
  Time now() const noexcept override { return now_; }
  std::size_t wait(Duration timeout, Time& now) override;
  void wake() noexcept override {}
  bool real_time() const noexcept override { return false; }
  std::optional<std::uint64_t> seed() const noexcept override { return seed_; }
  // A simulation has no descriptors.
  void watch(int fd, Watcher& watcher) override;
  void unwatch(int, Watcher&) noexcept override {}

  // Returns the number of wait() calls that had no end, because the simulated system was at rest. A system at rest that
  // never changes is stuck.
  std::size_t stalls() const noexcept { return stalls_; }

 private:
  const std::uint64_t seed_;
  Time now_{std::chrono::seconds(1)};
  std::size_t stalls_ = 0;
};

}  // namespace hawser::exec
