#pragma once

// For the durations and clocks of std::chrono, which timed waits use. <chrono> adds calendars and text streams: 4,800
// lines, or 10,700 with GCC 14. docs/decisions/0077.
#include <semaphore>

namespace hawser {

using Duration = std::chrono::nanoseconds;

// The clock of a loop: monotonic, with an arbitrary start. Virtual time in a simulation.
struct LoopClock {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<LoopClock>;
  static constexpr bool is_steady = true;
};
using Time = LoopClock::time_point;

inline constexpr Duration forever = Duration::max();

}  // namespace hawser
