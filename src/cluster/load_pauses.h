#pragma once

#include <stop_token>
#include <utility>

#include "hawser/time.h"

namespace hawser::cluster {

// The pauses between the questions for the load of servers. They end when the interval changes.
class LoadPauses {
 public:
  // Without memory nothing changes.
  void set_interval(Duration interval) {
    if (interval == interval_) return;
    std::stop_source next;
    interval_ = interval;
    std::exchange(changed_, std::move(next)).request_stop();
  }
  std::stop_token token() const noexcept { return changed_.get_token(); }

 private:
  Duration interval_{};
  std::stop_source changed_;
};

}  // namespace hawser::cluster
