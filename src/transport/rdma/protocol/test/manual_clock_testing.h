#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

#include "hawser/time.h"
#include "hawser/transport/poller.h"

namespace hawser::transport::rdma {

// A clock that a test moves.
class ManualClock final : public exec::Poller {
 public:
  std::string_view name() const noexcept override { return "manual"; }
  Time now() const noexcept override { return now_; }
  std::size_t wait(Duration, Time&) override { return 0; }
  void wake() noexcept override {}
  void watch(int, exec::Watcher&) override {}
  void unwatch(int, exec::Watcher&) noexcept override {}
  void pass(Duration time) { now_ += time; }

 private:
  Time now_{std::chrono::seconds(1)};
};

}  // namespace hawser::transport::rdma
