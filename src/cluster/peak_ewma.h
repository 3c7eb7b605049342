#pragma once

#include <cmath>

#include "hawser/time.h"

namespace hawser::cluster {

// The mean of latencies that weighs new ones more and takes a peak at once. It falls with time, so that an endpoint
// that was slow is tried again.
class PeakEwma {
 public:
  void observe(Duration latency, Time now, Duration decay) noexcept {
    const auto sample = static_cast<double>(latency.count());
    const double kept = measured() ? remaining(now, decay) : 0;
    value_ = sample > value_ * kept ? sample : value_ * kept + sample * (1 - kept);
    at_ = now;
  }
  bool measured() const noexcept { return at_ != Time(); }
  // In nanoseconds.
  double value(Time now, Duration decay) const noexcept { return value_ * remaining(now, decay); }

 private:
  double remaining(Time now, Duration decay) const noexcept {
    if (now <= at_) return 1;
    return std::exp(-static_cast<double>((now - at_).count()) / static_cast<double>(decay.count()));
  }

  double value_ = 0;
  Time at_{};
};

}  // namespace hawser::cluster
