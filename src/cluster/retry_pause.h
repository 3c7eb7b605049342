#pragma once

#include <algorithm>

#include "cluster/spread_pause.h"
#include "hawser/time.h"

namespace hawser::cluster {

// The pause of a source of a name after a failure: the interval, which doubles with each failure in a row up to a
// maximum of an hour, and differs by chance.
class RetryPause {
 public:
  RetryPause(Duration interval, Duration max) noexcept : interval_(interval), max_(max) {}

  Duration next(Loop& loop) noexcept {
    const Duration pause = std::min(interval_ * (1 << failures_), max_);
    failures_ = std::min(failures_ + 1, doublings_max);
    return spread_pause(loop, pause);
  }
  void reset() noexcept { failures_ = 0; }

 private:
  static constexpr int doublings_max = 20;

  const Duration interval_;
  const Duration max_;
  int failures_ = 0;  // In a row.
};

}  // namespace hawser::cluster
