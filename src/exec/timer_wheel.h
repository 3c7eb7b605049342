#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "hawser/loop.h"

namespace hawser {

// A hierarchical timer wheel (Varghese and Lauck, 1987). Each level has 64 slots and is 64 times as coarse as the level
// below. Starting and stopping a timer takes constant time. Ticks are 8.192 us long, counted from `origin`.
class TimerWheel {
 public:
  static constexpr unsigned tick_shift = 13;  // 2^13 ns.
  static constexpr unsigned slot_bits = 6;
  static constexpr unsigned slots = 1U << slot_bits;
  static constexpr unsigned levels = 8;  // 2^48 ticks: 73 years.
  static constexpr unsigned next_scan_max = 16;

  explicit TimerWheel(Time origin) noexcept : origin_(origin) {}
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;
  ~TimerWheel();

  void start(Timer& timer, Time when) noexcept;
  // True if a timer may be due at `now`; false if none is.
  bool due(Time now) const noexcept { return ticks_of(now, false) >= earliest_ticks_; }
  // Fires the timers that are due at `now`. Returns their number.
  std::size_t advance(Time now) {
    const std::uint64_t target = ticks_of(now, false);
    if (target >= earliest_ticks_) return fire(target);
    now_ticks_ = std::max(now_ticks_, target);
    return 0;
  }
  // Returns a time before which no timer fires; empty if no timer runs. It is the time of the earliest timer, unless
  // more than next_scan_max timers may be the earliest.
  std::optional<Time> next() const noexcept {
    if (next_ticks_ == unknown) [[unlikely]]
      next_ticks_ = find_next();
    if (next_ticks_ == never) return std::nullopt;
    return origin_ + Duration(static_cast<Duration::rep>(next_ticks_ << tick_shift));
  }
  bool empty() const noexcept { return count_ == 0; }

 private:
  friend class Timer;
  void insert(Timer& timer) noexcept;
  void removed(Timer& timer) noexcept;
  Timer* detach(unsigned index) noexcept;
  struct Due {
    std::uint64_t ticks;
    unsigned index;
  };
  std::optional<Due> next_slot() const noexcept;
  std::uint64_t find_next() const noexcept;
  std::size_t fire(std::uint64_t target);
  std::uint64_t ticks_of(Time when, bool round_up) const noexcept {
    if (when <= origin_) return 0;
    const auto ns = static_cast<std::uint64_t>((when - origin_).count());
    return (ns >> tick_shift) + (round_up && (ns & ((1U << tick_shift) - 1)) != 0 ? 1 : 0);
  }

  // Values of next_ticks_. No timer fires at tick 0.
  static constexpr std::uint64_t unknown = 0;
  static constexpr std::uint64_t never = UINT64_MAX;

  Time origin_;
  std::uint64_t now_ticks_ = 0;
  // The tick of next(). A loop asks in each turn, and most turns start and stop no timer.
  mutable std::uint64_t next_ticks_ = never;
  std::uint64_t earliest_ticks_ = UINT64_MAX;  // No occupied slot begins earlier.
  std::size_t count_ = 0;
  std::array<std::uint64_t, levels> occupied_{};
  std::array<Timer*, levels * slots> heads_{};
};

}  // namespace hawser
