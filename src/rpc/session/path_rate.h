#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "hawser/time.h"

namespace hawser::detail {

// Rate of a path, measured by the completions of its transfers. No loop, no clock.
class PathRate {
 public:
  // A rate is unknown again after this time without a transfer: the path may have changed, and a path that was slow
  // once would get no transfers to show that it is faster now.
  static constexpr Duration stale_after = std::chrono::seconds(1);

  void started(std::size_t bytes, Time now) noexcept {
    if (outstanding_ == 0) {
      if (stale(now)) bytes_per_second_ = 0;
      uncounted_ = 0;
      last_ = std::max(last_, now);  // The path was idle until now.
    }
    outstanding_ += bytes;
  }
  void completed(std::size_t bytes, Time now) noexcept {
    outstanding_ -= bytes;
    uncounted_ += bytes;
    if (now <= last_) return;  // Completions at one time are one sample, which ends with the next one.
    const double sample = static_cast<double>(uncounted_) / std::chrono::duration<double>(now - last_).count();
    bytes_per_second_ = bytes_per_second_ == 0 ? sample : bytes_per_second_ + (sample - bytes_per_second_) * weight;
    last_ = now;
    uncounted_ = 0;
  }
  // The transfer failed or was abandoned.
  void withdrawn(std::size_t bytes) noexcept { outstanding_ -= bytes; }

  // The path has failed. Its next transfer is measured anew.
  void forget() noexcept { bytes_per_second_ = 0; }

  // 0: unknown.
  double bytes_per_second(Time now) const noexcept { return stale(now) ? 0 : bytes_per_second_; }
  std::size_t outstanding() const noexcept { return outstanding_; }
  // Seconds until `bytes` that start now are expected to be complete. `unknown`: rate to assume while none is known.
  double seconds_until(std::size_t bytes, double unknown, Time now) const noexcept {
    const double known = bytes_per_second(now);
    return static_cast<double>(outstanding_ + bytes) / (known > 0 ? known : unknown);
  }

 private:
  bool stale(Time now) const noexcept { return outstanding_ == 0 && now - last_ > stale_after; }

  static constexpr double weight = 0.25;  // The part that a new sample has in the average.

  std::size_t outstanding_ = 0;
  std::size_t uncounted_ = 0;  // Completed bytes that are in no sample.
  double bytes_per_second_ = 0;
  Time last_{};  // Begin of the next sample.
};

}  // namespace hawser::detail
