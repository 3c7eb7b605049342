#include "hawser/sync.h"

#include "base/misuse.h"
#include "hawser/loop.h"

namespace hawser {
namespace detail {

Waiter::~Waiter() {
  if (state_ == State::queued) {
    queue_.remove(*this);
    queue_.grant();  // A smaller request behind this one may be possible now.
    return;
  }
  if (!resuming_) return;
  leave();
  loop_->forget(coroutine_);
  if (state_ == State::granted && count_ != no_permits) queue_.release(count_);
}

void Waiter::suspend(std::coroutine_handle<> coroutine) noexcept {
  loop_ = Loop::current();
  if (loop_ == nullptr) misuse("a coroutine waits outside of a loop; run it by Loop::run() or sync_wait()");
  if (queue_.first_ != nullptr && queue_.first_->loop_ != loop_) {
    misuse(
        "coroutines of two loops wait for one Event, Semaphore, Mutex, Latch or Channel; use it on one loop and reach "
        "it "
        "from others by Loop::post()");
  }
  coroutine_ = coroutine;
  if (state_ == State::refused) return resume(state_);  // Cancelled before it began to wait.
  state_ = State::queued;
  queue_.push(*this);
}

void Waiter::cancel() noexcept {
  if (state_ == State::created) {
    state_ = State::refused;
  } else if (state_ == State::queued) {
    queue_.remove(*this);
    resume(State::refused);
    queue_.grant();
  }
}

bool Waiter::take() noexcept {
  if (resuming_) leave();
  if (state_ != State::granted) return false;
  state_ = State::taken;
  return true;
}

void Waiter::resume(State state) noexcept {
  state_ = state;
  resuming_ = true;
  if (count_ != no_permits) ++queue_.resuming_;
  loop_->resume_soon(coroutine_);
}

void Waiter::leave() noexcept {
  resuming_ = false;
  if (count_ != no_permits) --queue_.resuming_;
}

WaitQueue::~WaitQueue() {
  if (first_ != nullptr || resuming_ != 0) {
    misuse("an Event, Semaphore, Mutex, Latch or Channel is destroyed while a coroutine waits for it");
  }
}

bool WaitQueue::try_acquire(std::size_t count) noexcept {
  if (first_ != nullptr || permits_ < count) return false;
  permits_ -= count;
  return true;
}

void WaitQueue::release(std::size_t count) noexcept {
  permits_ += count;
  grant();
}

void WaitQueue::grant() noexcept {
  while (first_ != nullptr && first_->count_ != Waiter::no_permits && first_->count_ <= permits_) {
    Waiter& waiter = *first_;
    permits_ -= waiter.count_;
    remove(waiter);
    waiter.resume(Waiter::State::granted);
  }
}

void WaitQueue::resume_all(bool granted) noexcept {
  while (first_ != nullptr) {
    Waiter& waiter = *first_;
    remove(waiter);
    waiter.resume(granted ? Waiter::State::granted : Waiter::State::refused);
  }
}

void WaitQueue::push(Waiter& waiter) noexcept {
  waiter.previous_ = last_;
  (last_ == nullptr ? first_ : last_->next_) = &waiter;
  last_ = &waiter;
}

void WaitQueue::remove(Waiter& waiter) noexcept {
  (waiter.previous_ == nullptr ? first_ : waiter.previous_->next_) = waiter.next_;
  (waiter.next_ == nullptr ? last_ : waiter.next_->previous_) = waiter.previous_;
  waiter.next_ = nullptr;
  waiter.previous_ = nullptr;
}

Task<bool> wait_in(WaitQueue& queue, std::size_t count, std::stop_token token) {
  struct Awaiter {
    Waiter& waiter;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> coroutine) const noexcept { waiter.suspend(coroutine); }
    bool await_resume() const noexcept { return waiter.take(); }
  };
  Waiter waiter(queue, count);
  const std::stop_callback cancel(std::move(token), [&waiter] { waiter.cancel(); });
  const bool granted = co_await Awaiter{waiter};
  co_return granted;
}

}  // namespace detail

Task<Result<void>> Event::wait(std::stop_token token) {
  if (set_) co_return Result<void>{};
  if (!token.stop_requested()) {
    const bool granted = co_await detail::wait_in(queue_, detail::Waiter::no_permits, std::move(token));
    if (granted) co_return Result<void>{};
  }
  co_return fail(ErrorCode::cancelled, "a stop was requested while waiting for an Event or a Latch");
}

Semaphore::~Semaphore() {
  // The queue reports waiters.
  if (queue_.permits() != total_ && queue_.idle()) {
    misuse("a Semaphore or Mutex is destroyed while a Permit is held, which would return to it later");
  }
}

Task<Result<Permit>> Semaphore::acquire(std::size_t count, std::stop_token token) {
  if (queue_.try_acquire(count)) co_return Permit(queue_, count);
  if (!token.stop_requested()) {
    const bool granted = co_await detail::wait_in(queue_, count, std::move(token));
    if (granted) co_return Permit(queue_, count);
  }
  co_return fail(ErrorCode::cancelled, "a stop was requested while waiting for a Semaphore or a Mutex");
}

void Latch::count_down(std::size_t by) noexcept {
  if (by > count_) misuse("Latch::count_down() below zero: it is counted down more often than its count");
  count_ -= by;
  if (count_ == 0) event_.set();
}

}  // namespace hawser
