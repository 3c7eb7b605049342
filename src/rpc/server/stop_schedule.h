#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdint>

#include "hawser/time.h"

namespace hawser::rpc {

// When a server that stops cancels its calls, and when it ends those that are left. No I/O, no clock.
class StopSchedule {
 public:
  enum class Phase : std::uint8_t {
    serving,
    finishing,   // Calls in flight may end within the grace.
    cancelling,  // They were cancelled.
    ending,      // They are destroyed, some in each tick. Offloaded functions may be left.
    stopped,
  };
  // Time that a stopping server waits after it has cancelled calls, and again for connections to close.
  static constexpr Duration last_wait = std::chrono::seconds(1);
  // The interval of the checks for sessions that are silent.
  static constexpr Duration silence_check = std::chrono::milliseconds(250);

  Phase phase() const noexcept { return phase_; }
  bool serving() const noexcept { return phase_ == Phase::serving; }
  bool stopped() const noexcept { return phase_ == Phase::stopped; }

  // `grace_end` is `now` and the grace, or Time::max(). True for the first call. Further calls only shorten the grace.
  bool begin(Time now, Duration grace, Time grace_end) noexcept {
    if (serving()) {
      enter(Phase::finishing);
      grace_ = grace;
      phase_end_ = grace_end;
      checked(now);
      return true;
    }
    if (grace < grace_) {
      grace_ = grace;
      phase_end_ = std::min(phase_end_, grace_end);
    }
    return false;
  }
  // True once, when the grace is over: the calls are to be cancelled.
  bool cancels(Time now) noexcept {
    if (phase_ != Phase::finishing || now < phase_end_) return false;
    enter(Phase::cancelling);
    phase_end_ = now + std::min(grace_, last_wait);
    return true;
  }
  // True once, when the time after that is over: the calls are to be destroyed.
  bool ends(Time now) noexcept {
    if (phase_ != Phase::cancelling || now < phase_end_) return false;
    enter(Phase::ending);
    return true;
  }
  // Silent sessions were looked for.
  void checked(Time now) noexcept { next_check_ = now + silence_check; }
  // Time of the next step; the schedule is not `ending` or `stopped`.
  Time next() const noexcept { return std::min(phase_end_, next_check_); }
  // Nothing is left.
  void stop() noexcept { enter(Phase::stopped); }

  static constexpr bool allows(Phase from, Phase to) noexcept {
    switch (from) {
      case Phase::serving: return to == Phase::finishing;
      case Phase::finishing: return to == Phase::cancelling || to == Phase::stopped;
      case Phase::cancelling: return to == Phase::ending || to == Phase::stopped;
      case Phase::ending: return to == Phase::stopped;
      case Phase::stopped: break;
    }
    return false;
  }

 private:
  void enter(Phase next) noexcept {
    assert(allows(phase_, next));
    phase_ = next;
  }

  Phase phase_ = Phase::serving;
  Duration grace_{};
  Time phase_end_{};
  Time next_check_{};
};

}  // namespace hawser::rpc
