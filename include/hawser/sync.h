#pragma once

#include <coroutine>
#include <cstddef>
#include <stop_token>
#include <utility>

#include "hawser/detail/wait_queue.h"
#include "hawser/error.h"
#include "hawser/task.h"

// Event, Semaphore, Mutex and Latch synchronise the coroutines of one loop.
//
// Thread: every function is called on the loop's thread, by code that the loop runs. Another thread uses post():
//   loop.post([&event] { event.set(); });
// Use from another thread ends the process with a message if it would resume a coroutine of a loop that runs elsewhere.
//
// Order: waiters are resumed in the order in which they began to wait, in the same tick or the next one, never within
// the call that resumes them. A waiter whose coroutine is destroyed leaves the queue; permits that it had been granted
// go to the next waiter.
//
// Lifetime: a primitive outlives its waiters and permits. Destroying a primitive while a coroutine waits for it, or
// while a permit is held, is a bug that ends the process with a message. An Event may be destroyed as soon as it has
// been set. A loop may end before its waiters, which are not resumed any more.
//
// Errors: functions with a std::stop_token fail with `cancelled` as soon as a stop is requested on the loop's thread,
// unless they have been granted what they wait for. These functions allocate a coroutine frame; the others do not
// allocate.
namespace hawser {

// Coroutines wait until the event is set. It stays set until reset().
class Event {
 public:
  explicit Event(bool set = false) noexcept : set_(set) {}

  bool is_set() const noexcept { return set_; }
  // Resumes all waiters. Later waits complete at once.
  void set() noexcept {
    set_ = true;
    queue_.resume_all(true);
  }
  // Later waits suspend again. Does not affect waiters that set() has resumed.
  void reset() noexcept { set_ = false; }

  // `co_await event.wait();`
  auto wait() noexcept {
    struct [[nodiscard("write `co_await`: without it, nothing waits")]] Awaiter {
      Event& event;
      detail::Waiter waiter;
      bool await_ready() const noexcept { return event.set_; }
      void await_suspend(std::coroutine_handle<> coroutine) noexcept { waiter.suspend(coroutine); }
      void await_resume() noexcept { waiter.take(); }
    };
    return Awaiter{*this, {queue_, detail::Waiter::no_permits}};
  }
  Task<Result<void>> wait(std::stop_token token);

 private:
  bool set_;
  detail::WaitQueue queue_{0};
};

// Permits of a Semaphore. They return to it when this object is destroyed. Movable; empty when moved from.
class [[nodiscard("the permits are released when this is destroyed")]] Permit {
 public:
  Permit() noexcept = default;
  Permit(Permit&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)), count_(other.count_) {}
  Permit& operator=(Permit&& other) noexcept {
    if (this != &other) {
      release();
      queue_ = std::exchange(other.queue_, nullptr);
      count_ = other.count_;
    }
    return *this;
  }
  ~Permit() { release(); }

  explicit operator bool() const noexcept { return queue_ != nullptr; }
  // Returns the permits early.
  void release() noexcept {
    if (detail::WaitQueue* const queue = std::exchange(queue_, nullptr)) queue->release(count_);
  }

 private:
  friend class Semaphore;
  Permit(detail::WaitQueue& queue, std::size_t count) noexcept : queue_(&queue), count_(count) {}

  detail::WaitQueue* queue_ = nullptr;
  std::size_t count_ = 0;
};

// Limits how many coroutines do something at the same time. Waiters are served in order: a waiter for many permits is
// not overtaken by waiters for few.
class Semaphore {
 public:
  explicit Semaphore(std::size_t permits) noexcept : queue_(permits), total_(permits) {}
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;
  ~Semaphore();

  // Number of permits that nobody holds.
  std::size_t available() const noexcept { return queue_.permits(); }

  // `auto permit = co_await semaphore.acquire();` A `count` above the number of all permits waits for ever.
  auto acquire(std::size_t count = 1) noexcept {
    struct Awaiter {
      Semaphore& semaphore;
      std::size_t count;
      detail::Waiter waiter;
      bool ready = false;
      bool await_ready() noexcept { return ready = semaphore.queue_.try_acquire(count); }
      void await_suspend(std::coroutine_handle<> coroutine) noexcept { waiter.suspend(coroutine); }
      Permit await_resume() noexcept {
        if (!ready) waiter.take();
        return Permit(semaphore.queue_, count);
      }
    };
    return Awaiter{*this, count, {queue_, count}};
  }
  Task<Result<Permit>> acquire(std::size_t count, std::stop_token token);
  // Acquires without waiting. Empty if `count` permits are not available, or if coroutines wait already.
  Permit try_acquire(std::size_t count = 1) noexcept {
    return queue_.try_acquire(count) ? Permit(queue_, count) : Permit();
  }

 private:
  detail::WaitQueue queue_;
  const std::size_t total_;
};

// Excludes other coroutines. Not recursive. `auto lock = co_await mutex.lock();` holds the mutex until `lock` is
// destroyed.
class Mutex {
 public:
  bool locked() const noexcept { return semaphore_.available() == 0; }
  auto lock() noexcept { return semaphore_.acquire(1); }
  Task<Result<Permit>> lock(std::stop_token token) { return semaphore_.acquire(1, std::move(token)); }
  Permit try_lock() noexcept { return semaphore_.try_acquire(1); }

 private:
  Semaphore semaphore_{1};
};

// Coroutines wait until count_down() has been called `count` times.
class Latch {
 public:
  explicit Latch(std::size_t count) noexcept : count_(count), event_(count == 0) {}

  std::size_t remaining() const noexcept { return count_; }
  // `by` must be at most remaining(); more ends the process with a message.
  void count_down(std::size_t by = 1) noexcept;
  auto wait() noexcept { return event_.wait(); }
  Task<Result<void>> wait(std::stop_token token) { return event_.wait(std::move(token)); }

 private:
  std::size_t count_;
  Event event_;
};

}  // namespace hawser
