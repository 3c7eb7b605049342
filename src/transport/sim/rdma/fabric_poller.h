#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "hawser/transport/poller.h"
#include "transport/sim/rdma/sim_fabric.h"

namespace hawser::transport {

// A loop's poller in the virtual time of a fabric. Waiting advances the clock to the next timer or the next event of
// the fabric. Watchers of completion queues are notified as devices would notify them. Operations that a side requests
// keep its device's processor busy, which sees no completion before they are done.
class FabricPoller final : public exec::Poller {
 public:
  explicit FabricPoller(std::shared_ptr<SimFabric> fabric) : fabric_(std::move(fabric)) {}

  std::string_view name() const noexcept override { return "simulated"; }
  Time now() const noexcept override { return now_; }
  // A wait that no event will ever end returns at once. Too many of them in a row throw std::logic_error.
  std::size_t wait(Duration timeout, Time& now) override;
  void wake() noexcept override {}
  bool real_time() const noexcept override { return false; }
  // A simulation has no descriptors.
  void watch(int fd, exec::Watcher& watcher) override;
  void unwatch(int, exec::Watcher&) noexcept override {}

  static constexpr std::size_t stalls_max = 10'000;

 private:
  const std::shared_ptr<SimFabric> fabric_;
  const Time start_{std::chrono::seconds(1)};
  Time now_ = start_;
  std::size_t stalls_ = 0;
};

}  // namespace hawser::transport
