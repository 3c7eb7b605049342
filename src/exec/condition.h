#pragma once

#include <coroutine>

#include "hawser/loop.h"

namespace hawser::exec {

// Lets coroutines of one loop wait for an event. The loop resumes every waiter after notify_all(); each waiter checks
// its own condition again. Waiters may be destroyed while they wait. The condition must outlive them.
class Condition {
 public:
  explicit Condition(Loop& loop) noexcept : loop_(loop) {}
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  class Waiter {
   public:
    explicit Waiter(Condition& condition) noexcept : condition_(condition) {}
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    ~Waiter() {
      if (linked_) unlink();
      if (queued_) condition_.loop_.forget(handle_);
    }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      handle_ = handle;
      linked_ = true;
      next_ = condition_.first_;
      if (next_ != nullptr) next_->previous_ = &next_;
      previous_ = &condition_.first_;
      condition_.first_ = this;
    }
    void await_resume() noexcept { queued_ = false; }
    // Resumes this waiter alone, if it waits.
    void wake() {
      if (!linked_) return;
      unlink();
      queued_ = true;
      condition_.loop_.resume_soon(handle_);
    }

   private:
    friend class Condition;
    void unlink() noexcept {
      linked_ = false;
      *previous_ = next_;
      if (next_ != nullptr) next_->previous_ = previous_;
    }
    Condition& condition_;
    std::coroutine_handle<> handle_;
    bool linked_ = false;
    bool queued_ = false;
    Waiter* next_ = nullptr;
    Waiter** previous_ = nullptr;
  };

  Waiter wait() noexcept { return Waiter(*this); }

  void notify_all() {
    while (first_ != nullptr) first_->wake();
  }

 private:
  Loop& loop_;
  Waiter* first_ = nullptr;
};

}  // namespace hawser::exec
