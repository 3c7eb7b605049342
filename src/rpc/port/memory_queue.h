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
  // Goes on if the memory can be charged; `beyond`: in any case. False: it still waits.
  virtual bool try_to_receive(bool beyond) noexcept = 0;
  // It has waited for MemoryQueue::patience.
  virtual void end_waiting() noexcept = 0;
  // True while it holds memory for a long message.
  virtual bool holds_message() const noexcept = 0;

 protected:
  ~MemoryWaiter() = default;
};

// The connections of a loop that wait for memory for what they receive. One of them at a time may exceed the limits: a
// message that has begun holds memory, so all of them could wait for each other. docs/decisions/0074. Loop's thread
// only.
class MemoryQueue {
 public:
  static constexpr Duration interval = std::chrono::milliseconds(5);
  static constexpr Duration patience = std::chrono::seconds(10);
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

 private:
  struct Place {
    MemoryWaiter* waiter;  // Null: it does not wait any more.
    Time since;
  };
  void look() noexcept;

  Loop& loop_;
  std::vector<Place> waiting_;
  MemoryWaiter* ahead_ = nullptr;  // Exceeds the limits until its message is complete.
  MemberTimer<&MemoryQueue::look> timer_{*this};
};

}  // namespace hawser::rpc
