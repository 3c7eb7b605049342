#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "hawser/task.h"

namespace hawser {

class Loop;

namespace detail {

class WaitQueue;

// One suspended coroutine in a WaitQueue. It lives in the coroutine's frame.
class Waiter {
 public:
  // For waiters that need no permits: only resume_all() resumes them.
  static constexpr std::size_t no_permits = static_cast<std::size_t>(-1);

  Waiter(WaitQueue& queue, std::size_t count) noexcept : queue_(queue), count_(count) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter();

  void suspend(std::coroutine_handle<> coroutine) noexcept;
  // Ends the wait and resumes the coroutine, unless the permits have been granted. Called before suspend(), the
  // coroutine does not wait at all.
  void cancel() noexcept;
  // True if the permits were granted to this waiter. Called once each time the coroutine has resumed.
  bool take() noexcept;

 private:
  friend class WaitQueue;
  enum class State : std::uint8_t { created, queued, granted, refused, taken };

  void resume(State state) noexcept;
  // Removes a waiter whose coroutine is about to be resumed or has been destroyed. The queue of a waiter without
  // permits may have been destroyed by then.
  void leave() noexcept;

  WaitQueue& queue_;
  const std::size_t count_;
  Waiter* next_ = nullptr;
  Waiter* previous_ = nullptr;
  Loop* loop_ = nullptr;  // The coroutine's loop; set when it suspends.
  std::coroutine_handle<> coroutine_;
  State state_ = State::created;
  bool resuming_ = false;  // The loop is about to resume the coroutine.
};

// A count of permits and the coroutines that wait for some, served in the order of arrival.
class WaitQueue {
 public:
  explicit WaitQueue(std::size_t permits) noexcept : permits_(permits) {}
  WaitQueue(const WaitQueue&) = delete;
  WaitQueue& operator=(const WaitQueue&) = delete;
  ~WaitQueue();

  std::size_t permits() const noexcept { return permits_; }
  // True if no coroutine waits, and none has been granted permits and not resumed yet.
  bool idle() const noexcept { return first_ == nullptr && resuming_ == 0; }
  // False if fewer than `count` permits are left or coroutines wait already.
  bool try_acquire(std::size_t count) noexcept;
  void release(std::size_t count) noexcept;
  // Resumes every waiter, without permits. `granted` is the result of its take().
  void resume_all(bool granted) noexcept;

 private:
  friend class Waiter;
  void push(Waiter& waiter) noexcept;
  void remove(Waiter& waiter) noexcept;
  void grant() noexcept;

  std::size_t permits_;
  std::size_t resuming_ = 0;  // Waiters for permits that the loop is about to resume. They use this queue then.
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
};

// Waits for `count` permits. False if a stop was requested on the loop's thread first, or resume_all(false) was called.
Task<bool> wait_in(WaitQueue& queue, std::size_t count, std::stop_token token);

}  // namespace detail

}  // namespace hawser
