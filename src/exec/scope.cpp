#include "hawser/scope.h"

#include <exception>
#include <utility>

#include "base/misuse.h"
#include "hawser/loop.h"

namespace hawser {

struct Scope::Root::promise_type : detail::PooledFrame, Scope::Links {
  promise_type(Scope& owner, Task<void>&) noexcept : scope(owner) {
    next = &scope.tasks_;
    previous = scope.tasks_.previous;
    previous->next = this;
    next->previous = this;
    ++scope.size_;
  }
  ~promise_type() {
    next->previous = previous;
    previous->next = next;
    --scope.size_;
  }

  // Frees the frame first, so that the waiter of the last task may destroy the scope.
  struct Leave {
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) const noexcept {
      Scope& owner = self.promise().scope;
      self.destroy();
      if (owner.empty() && owner.joiner_ != nullptr) return owner.joiner_->leave();
      return std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };

  Root get_return_object() noexcept { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
  std::suspend_always initial_suspend() const noexcept { return {}; }
  Leave final_suspend() const noexcept { return {}; }
  void return_void() const noexcept {}
  void unhandled_exception() const noexcept { std::terminate(); }

  Scope& scope;
};

Scope::Root Scope::run(Scope&, Task<void> task) { co_await std::move(task); }

void Scope::spawn(Task<void> task) { run(*this, std::move(task)).handle.resume(); }

void Scope::clear() noexcept {
  while (tasks_.next != &tasks_) {
    std::coroutine_handle<Root::promise_type>::from_promise(static_cast<Root::promise_type&>(*tasks_.next)).destroy();
  }
  if (joiner_ == nullptr) return;
  // The loop resumes the joiner, because the caller that clears the scope may be about to destroy it.
  Join& joiner = *joiner_;
  const std::coroutine_handle<> waiter = joiner.leave();
  joiner.resuming_ = true;
  joiner.loop_->resume_soon(waiter);
}

Scope::Join::~Join() {
  if (linked_) leave();
  if (resuming_) loop_->forget(waiter_);
}

void Scope::Join::await_suspend(std::coroutine_handle<> waiter) noexcept {
  if (scope_.joiner_ != nullptr)
    misuse("two coroutines wait in Scope::join() of one scope; let one of them wait and set an Event");
  loop_ = Loop::current();
  if (loop_ == nullptr)
    misuse("a coroutine waits in Scope::join() outside of a loop; run it by Loop::run() or sync_wait()");
  waiter_ = waiter;
  linked_ = true;
  scope_.joiner_ = this;
}

std::coroutine_handle<> Scope::Join::leave() noexcept {
  linked_ = false;
  scope_.joiner_ = nullptr;
  return waiter_;
}

}  // namespace hawser
