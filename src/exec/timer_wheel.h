#pragma once

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
  // Fires the timers that are due at `now`. Returns their number.
  std::size_t advance(Time now);
  // Returns a time before which no timer fires; empty if no timer runs. It is the time of the earliest timer, unless
  // more than next_scan_max timers may be the earliest.
  std::optional<Time> next() const noexcept;
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
  std::uint64_t ticks_of(Time when, bool round_up) const noexcept;

  Time origin_;
  std::uint64_t now_ticks_ = 0;
  std::size_t count_ = 0;
  std::array<std::uint64_t, levels> occupied_{};
  std::array<Timer*, levels * slots> heads_{};
};

}  // namespace hawser
