#pragma once

#include <coroutine>
#include <cstddef>

#include "hawser/task.h"

namespace hawser {

// Owns tasks that run beside each other on one loop. Belongs to that loop's thread. Destroying a scope ends the
// tasks that have not finished where they are suspended; join() waits for them instead.
class Scope {
 public:
  Scope() noexcept = default;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { clear(); }

  // Starts `task` at once; it runs until it first suspends before spawn() returns. An exception that leaves a
  // spawned task ends the process: whoever spawns has to say what an error means.
  void spawn(Task<void> task);

  // Tasks that have not finished.
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  // Ends every unfinished task where it is suspended. Must not be called by a task of this scope.
  void clear() noexcept;

  // Completes when the scope has become empty. One waiter at a time.
  auto join() noexcept {
    struct Awaiter {
      Scope& scope;
      bool await_ready() const noexcept { return scope.empty(); }
      void await_suspend(std::coroutine_handle<> waiter) const noexcept { scope.waiter_ = waiter; }
      void await_resume() const noexcept {}
      ~Awaiter() { scope.waiter_ = nullptr; }
    };
    return Awaiter{*this};
  }

 private:
  // The root coroutine of one spawned task, linked into its scope until it ends.
  struct Root {
    struct promise_type;
    std::coroutine_handle<promise_type> handle;
  };
  struct Links {
    Links* next = this;
    Links* previous = this;
  };
  static Root run(Scope& scope, Task<void> task);

  Links tasks_;
  std::size_t size_ = 0;
  std::coroutine_handle<> waiter_;
};

}  // namespace hawser
