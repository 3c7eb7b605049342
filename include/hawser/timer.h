#pragma once

#include <cstdint>

#include "hawser/time.h"

namespace hawser {

class Loop;
class TimerWheel;

// Calls back once per start() on a loop's thread. It is a member of the object that waits. Destroying it stops it.
// Loop's thread only.
class Timer {
 public:
  using Callback = void (*)(Timer&) noexcept;

  explicit Timer(Callback callback) noexcept : callback_(callback) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { stop(); }

  // Fires at `when` or up to 10 us later; if `when` is past, at the loop's next tick. Restarts a running timer.
  void start(Loop& loop, Time when) noexcept;
  void stop() noexcept {
    if (previous_ != nullptr) unlink();
  }
  bool running() const noexcept { return previous_ != nullptr; }

 private:
  friend class TimerWheel;
  void unlink() noexcept;

  Callback callback_;
  Timer* next_ = nullptr;
  Timer** previous_ = nullptr;  // The pointer that refers to this timer; null while the timer is stopped.
  TimerWheel* wheel_ = nullptr;
  std::uint64_t expiry_ticks_ = 0;
  std::uint16_t slot_ = 0;
};

}  // namespace hawser
