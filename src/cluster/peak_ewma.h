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
    const double part = static_cast<double>((now - at_).count()) / static_cast<double>(decay.count());
    // The first terms of the series are exact to 2e-10 there, and cost a third.
    return part < 0x1p-10 ? 1 - part + part * part / 2 : std::exp(-part);
  }

  double value_ = 0;
  Time at_{};
};

}  // namespace hawser::cluster
