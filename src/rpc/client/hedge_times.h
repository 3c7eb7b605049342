#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "hawser/hedging.h"
#include "rpc/client/latency_window.h"

namespace hawser::rpc {

// When calls or reads get copies, and how many copies all of them together may get. `method` is the method of a call,
// or the class of a read's size. No I/O, no clock.
class HedgeTimes {
 public:
  static constexpr std::size_t methods_max = 256;  // Further methods are not measured, and have no copies.
  static constexpr double copies_saved_max = 10;

  // A call that may have copies begins. Returns the time until its next copy; empty: none.
  std::optional<Duration> begin_call(const HedgeOptions& options, std::uint32_t method, Time now) {
    copies_ = std::min(copies_saved_max, copies_ + options.budget);
    if (options.delay) return options.delay;
    LatencyWindow* const window = window_of(method);
    const auto usual = window == nullptr ? std::nullopt : window->quantile(options.percentile, now);
    return usual ? std::optional(std::max(*usual, options.delay_min)) : std::nullopt;
  }
  bool may_copy() const noexcept { return copies_ >= 1; }
  void begin_copy() noexcept { copies_ -= 1; }
  void observe(std::uint32_t method, Duration latency, Time now) {
    if (LatencyWindow* const window = window_of(method)) window->observe(latency, now);
  }
  double copies() const noexcept { return copies_; }

 private:
  LatencyWindow* window_of(std::uint32_t method) {
    if (const auto known = windows_.find(method); known != windows_.end()) return known->second.get();
    if (windows_.size() == methods_max) return nullptr;
    return windows_.emplace(method, std::make_unique<LatencyWindow>()).first->second.get();
  }

  double copies_ = 0;
  std::unordered_map<std::uint32_t, std::unique_ptr<LatencyWindow>> windows_;
};

}  // namespace hawser::rpc
