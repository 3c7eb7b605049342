#pragma once

#include <cstdint>

#include "hawser/time.h"

namespace hawser {

class Loop;
class TimerWheel;

// Fires once at a time on a loop. Lives in the object that waits; destroying it stops it. Loop's thread only.
class Timer {
 public:
  using Callback = void (*)(Timer&) noexcept;

  explicit Timer(Callback callback) noexcept : callback_(callback) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { stop(); }

  // Fires at `when`, or up to 10 us later, or at the loop's next tick if that is past. Restarts a running timer.
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
  Timer** previous_ = nullptr;  // The pointer that points here; null while stopped.
  TimerWheel* wheel_ = nullptr;
  std::uint64_t expiry_ticks_ = 0;
  std::uint16_t slot_ = 0;
};

}  // namespace hawser
