#include "hawser/scope.h"

#include <exception>
#include <utility>

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
      if (owner.empty() && owner.waiter_) return std::exchange(owner.waiter_, nullptr);
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
}

}  // namespace hawser
