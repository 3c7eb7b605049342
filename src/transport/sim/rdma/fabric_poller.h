#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "hawser/transport/poller.h"
#include "transport/sim/rdma/sim_fabric.h"

namespace hawser::transport {

// A loop's poller in the virtual time of a fabric: waiting moves the clock to what happens next, be it a timer or an
// event of the fabric, and watchers of completion queues are told as devices would tell them. What a side asks of its
// device keeps that device's processor busy, which sees no completion before it is done.
class FabricPoller final : public exec::Poller {
 public:
  explicit FabricPoller(std::shared_ptr<SimFabric> fabric) : fabric_(std::move(fabric)) {}

  std::string_view name() const noexcept override { return "simulated"; }
  Time now() const noexcept override { return now_; }
  // A wait that nothing will ever end returns at once; so many of them in a row throw std::logic_error.
  std::size_t wait(Duration timeout, Time& now) override;
  void wake() noexcept override {}
  bool real_time() const noexcept override { return false; }
  // There are no descriptors in a simulation.
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
