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

namespace detail {

template <class Function>
struct OwnerOfFunction;
template <class Result, class Object, bool Noexcept, class... Parameters>
struct OwnerOfFunction<Result (Object::*)(Parameters...) noexcept(Noexcept)> {
  using Owner = Object;
};

}  // namespace detail

// A timer that calls a member function of the object that owns it, with constant arguments. A class declares the
// function before the timer:
//
//   void on_deadline() noexcept;
//   MemberTimer<&Call::on_deadline> deadline_{*this};
//
// The function may start the timer again, and it may destroy the owner together with the timer. An exception that it
// throws ends the program.
template <auto Function, auto... Arguments>
class MemberTimer : public Timer {
  using Owner = typename detail::OwnerOfFunction<decltype(Function)>::Owner;

 public:
  // `owner` outlives the timer.
  explicit MemberTimer(Owner& owner) noexcept : Timer(&MemberTimer::fire), owner_(owner) {}

 private:
  static void fire(Timer& timer) noexcept { (static_cast<MemberTimer&>(timer).owner_.*Function)(Arguments...); }

  Owner& owner_;
};

}  // namespace hawser
