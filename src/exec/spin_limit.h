#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "hawser/time.h"

namespace hawser::exec {

// Determines how long a loop spins before it sleeps. A sleep costs the time of a wake-up. If wake-ups are slow, as on
// virtual machines, a short spin makes both sides of a connection sleep each time, since each wakes the other too late
// for its spin. The wake-up time is measured by sleeps of one microsecond. The minimum of the last few sleeps counts,
// since all other effects only add time. Without I/O.
class SpinLimit {
 public:
  static constexpr Duration least = std::chrono::microseconds(50);
  static constexpr Duration most = std::chrono::milliseconds(1);
  static constexpr Duration probe_sleep = std::chrono::microseconds(1);
  // A longer wake-up does not raise the limit: kernels before 5.11 sleep for whole milliseconds, so the measurement is
  // not one of a wake-up, and a loop that wakes up so late gains nothing from spinning.
  static constexpr Duration coarse = std::chrono::microseconds(900);
  static constexpr int wake_ups = 4;            // Wake-ups in a limit: this side's, the peer's, and as much again.
  static constexpr unsigned probe_every = 256;  // Number of sleeps. The first few are probes too.

  explicit SpinLimit(std::optional<Duration> fixed) noexcept
      : fixed_(fixed.has_value()), limit_(fixed.value_or(least)) {}

  Duration get() const noexcept { return limit_; }
  // Called before each sleep. Returns true if the sleep must be a probe, of probe_sleep.
  bool probe_due() noexcept {
    if (fixed_) return false;
    if (count_ < samples_.size()) return true;
    if (++sleeps_ < probe_every) return false;
    sleeps_ = 0;
    return true;
  }
  // Reports a probe that no event ended early: it took `elapsed`, to which the kernel adds `timer_slack` by itself.
  void probed(Duration elapsed, Duration timer_slack) noexcept {
    samples_[count_++ % samples_.size()] = std::max(elapsed - probe_sleep - timer_slack, Duration::zero());
    if (count_ < samples_.size()) return;
    if (count_ == 2 * samples_.size()) count_ = samples_.size();
    const Duration wake_up = *std::min_element(samples_.begin(), samples_.end());
    limit_ = wake_up < coarse ? std::clamp(wake_up * wake_ups, least, most) : least;
  }

 private:
  const bool fixed_;
  Duration limit_;
  std::array<Duration, 4> samples_{};
  std::size_t count_ = 0;
  unsigned sleeps_ = 0;
};

}  // namespace hawser::exec
