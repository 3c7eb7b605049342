#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hawser/time.h"

namespace hawser::protocol::http {

// Whether a client takes what waits for it: a part of it, or all, within a time. No clock.
class OutputPace {
 public:
  // A client must take so many bytes, or all that wait, within the time.
  static constexpr std::size_t taken_bytes_least = 16 * 1024;

  // True if the client has taken less than it must for `time_max`. `taken`: bytes that the client has ever taken;
  // `waiting`: bytes that wait for it.
  bool too_slow(std::uint64_t taken, std::size_t waiting, Time now, Duration time_max) noexcept {
    if (taken - taken_ < wanted_) return now - since_ >= time_max;
    since_ = now;
    taken_ = taken;
    wanted_ = std::min(waiting, taken_bytes_least);
    return false;
  }

 private:
  // When bytes were seen to wait, what had been taken by then, and how many bytes the client must take from then on.
  Time since_{};
  std::uint64_t taken_ = 0;
  std::size_t wanted_ = 0;
};

}  // namespace hawser::protocol::http
