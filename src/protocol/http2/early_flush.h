#pragma once

#include <algorithm>
#include <cstddef>

#include "hawser/time.h"

namespace hawser::protocol::http2 {

// Decides how many bytes of one tick are collected before they are sent. The first part is small, so that the peer
// begins to work on it soon; each further part of the tick is twice as long, because a system call has a price.
class EarlyFlush {
 public:
  static constexpr std::size_t first_bytes = 1024;
  static constexpr std::size_t bytes_max = 16 * 1024;

  // `tick` is Loop::now().
  std::size_t bytes(Time tick) noexcept {
    if (tick != tick_) {
      tick_ = tick;
      bytes_ = first_bytes;
    }
    return bytes_;
  }
  // Called after a part of that size has been collected.
  void sent() noexcept { bytes_ = std::min(2 * bytes_, bytes_max); }

 private:
  Time tick_{};
  std::size_t bytes_ = first_bytes;
};

}  // namespace hawser::protocol::http2
