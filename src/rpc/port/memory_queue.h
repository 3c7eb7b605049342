#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "hawser/loop.h"
#include "hawser/timer.h"

namespace hawser::rpc {

// A connection that is not read until there is memory for the rest of a message that has begun.
class MemoryWaiter {
 public:
  // Goes on if the memory can be charged; `beyond`: in any case, unless it waits for something else too. False: it
  // still waits.
  virtual bool try_to_receive(bool beyond) noexcept = 0;
  // It exceeds the limits, and others have waited for it for MemoryQueue::patience: it ends.
  virtual void end_late() noexcept = 0;

 protected:
  ~MemoryWaiter() = default;
};

// The connections of a loop that wait for memory for what they receive. One of them at a time may exceed the limits: a
// message that has begun holds memory, so all of them could wait for each other. It calls passed() when the message is
// complete, and the one that has waited longest is the next. docs/decisions/0074. Loop's thread only.
class MemoryQueue {
 public:
  static constexpr Duration interval = std::chrono::milliseconds(5);
  // Longer than the 20 s after which a peer that sends nothing has ended: see ServerOptions::receive_window.
  static constexpr Duration patience = std::chrono::seconds(30);
  // Each one may hold a block that nobody pays for.
  static constexpr std::size_t waiting_max = 256;

  explicit MemoryQueue(Loop& loop) noexcept : loop_(loop) {}
  MemoryQueue(const MemoryQueue&) = delete;
  MemoryQueue& operator=(const MemoryQueue&) = delete;

  // The waiter, which does not wait yet, goes on later. False: too many wait. May throw std::bad_alloc.
  bool add(MemoryWaiter& waiter);
  // It ends. Nothing happens if it is not known.
  void remove(const MemoryWaiter& waiter) noexcept;
  // True if its message may exceed the limits.
  bool may_exceed(const MemoryWaiter& waiter) const noexcept { return ahead_ == &waiter; }
  // Its message is complete, and it holds the beginning of another one at most. Nothing happens if it may not exceed.
  void passed(const MemoryWaiter& waiter) noexcept {
    if (ahead_ == &waiter) ahead_ = nullptr;
  }

 private:
  struct Place {
    MemoryWaiter* waiter;  // Null while look() runs: it does not wait any more.
    Time since;
  };
  void look() noexcept;

  Loop& loop_;
  std::vector<Place> waiting_;
  bool looking_ = false;           // look() runs.
  MemoryWaiter* ahead_ = nullptr;  // Exceeds the limits until its message is complete.
  Time ahead_since_{};
  MemberTimer<&MemoryQueue::look> timer_{*this};
};

}  // namespace hawser::rpc
