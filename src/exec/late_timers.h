#pragma once

#include <chrono>
#include <cstddef>

#include "exec/timer_wheel.h"
#include "hawser/transport/poller.h"

namespace hawser::exec {

// Fires the timers of a loop. A deadline must not pass over input that has arrived before it: if the loop did not run
// for a while, its timers wait until the poller has delivered everything that was ready after they were due. Without
// I/O beside the poller's.
class LateTimers {
 public:
  // Deadlines are as exact as this. A timer that fires in time costs no poll.
  static constexpr Duration late_min = std::chrono::milliseconds(1);

  explicit LateTimers(Time origin) noexcept : begun_(origin), complete_(origin) {}

  // Polls, and sets `now`. `before`: a time that the clock has shown before. Returns the number of events.
  std::size_t wait(Poller& poller, Duration timeout, Time before, Time& now) {
    if (!polling_) begun_ = before;
    polling_ = true;
    const std::size_t events = poller.wait(timeout, now);
    polling_ = !poller.drained();
    if (!polling_) complete_ = begun_;
    return events;
  }
  // Fires timers that are due at `now`. A timer that has to wait for input is left: TimerWheel::next() is past then, so
  // the loop polls again without a sleep. Returns the number of timers that have fired.
  std::size_t fire(TimerWheel& wheel, Time now) {
    if (now - complete_ <= 2 * late_min) [[likely]]
      return wheel.advance(now);
    const std::size_t fired = wheel.advance(complete_ + late_min);
    return wheel.next().value_or(now) < now - late_min ? fired : fired + wheel.advance(now);
  }

 private:
  Time begun_;            // The first poll of the present series began then, or later.
  Time complete_;         // Everything that was ready then has been delivered.
  bool polling_ = false;  // The last poll has left something that was ready.
};

}  // namespace hawser::exec
