#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "hawser/time.h"

namespace hawser::exec {

// Holds timers that are late. A process that did not run for a while finds both its input and its timers: what arrived
// before a deadline must be delivered before the deadline passes, and one poll delivers a part of the input. Late
// timers therefore fire after a poll that began when they were late, and finds nothing. A poll that began before has no
// say: the process may have stopped behind its look at the input. A loop that always finds something holds the timers
// as long again as they were late.
class LateTimers {
 public:
  // The time after which a timer counts as late.
  static constexpr Duration late_min = std::chrono::milliseconds(10);

  // Called after each poll of all sources and of the poller. `quiet`: they had nothing.
  void polled(bool quiet) noexcept {
    released_ = quiet && held_;
    held_ &= !quiet;
  }

  // True if the timers must not fire now. `due` is the time of the earliest one. If it is not late, those that were
  // held have been stopped.
  bool hold(Time due, Time now) noexcept {
    const Duration late = now - due;
    if (std::exchange(released_, false) || late < late_min || (held_ && now >= until_)) return held_ = false;
    until_ = held_ ? std::min(until_, now + late) : now + late;
    return held_ = true;
  }

 private:
  bool held_ = false;
  bool released_ = false;  // The last poll began when timers were held, and was quiet.
  Time until_{};           // If timers are held: they are not held longer.
};

}  // namespace hawser::exec
