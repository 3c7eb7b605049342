#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "hawser/transport/poller.h"

namespace hawser::testing {

// Virtual time: only waiting moves the clock. wait() throws RunFailed if no event is due any more, and at the limits of
// a run.
class VirtualPoller final : public exec::Poller {
 public:
  VirtualPoller(std::uint64_t seed, Duration time_max, std::uint64_t turns_max) noexcept
      : seed_(seed), time_max_(time_max), turns_max_(turns_max) {}

  std::string_view name() const noexcept override { return "virtual"; }
  Time now() const noexcept override { return now_; }
  std::size_t wait(Duration timeout, Time& now) override;
  void wake() noexcept override {}
  void watch(int fd, exec::Watcher& watcher) override;
  void unwatch(int, exec::Watcher&) noexcept override {}
  bool real_time() const noexcept override { return false; }
  std::optional<std::uint64_t> seed() const noexcept override { return seed_; }

  Duration elapsed() const noexcept { return now_ - start; }

 private:
  static constexpr Time start{std::chrono::seconds(1)};

  const std::uint64_t seed_;
  const Duration time_max_;
  const std::uint64_t turns_max_;
  Time now_ = start;
  std::uint64_t turns_ = 0;
};

}  // namespace hawser::testing
