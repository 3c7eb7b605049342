#pragma once

#include <coroutine>
#include <cstddef>

#include "hawser/task.h"

namespace hawser {

class Loop;

// Owns tasks that run concurrently on one loop. Belongs to that loop's thread. When a scope is destroyed, tasks that
// have not finished end where they are suspended. join() waits for them instead. A task must not destroy its scope,
// because it is not suspended then: the behaviour is undefined.
class Scope {
 public:
  Scope() noexcept = default;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { clear(); }  // Like clear(): a coroutine that waits in join() is resumed.

  // Starts `task` at once: it runs until it first suspends, then spawn() returns. An exception that leaves a spawned
  // task ends the process, so the task must handle its errors.
  void spawn(Task<void> task);

  // Number of tasks that have not finished.
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  // Ends every unfinished task where it is suspended. A task of this scope must not call it either.
  void clear() noexcept;

  // `co_await scope.join();` completes when the scope is empty. Only one coroutine may wait at a time; a second one
  // ends the process with a message.
  class [[nodiscard("write `co_await`: without it, nothing waits")]] Join {
   public:
    explicit Join(Scope& scope) noexcept : scope_(scope) {}
    Join(const Join& other) noexcept
        : scope_(other.scope_) {}  // Not of one that is awaited. GCC 12 copies what it could refer to.
    Join& operator=(const Join&) = delete;
    ~Join();
    bool await_ready() const noexcept { return scope_.empty(); }
    void await_suspend(std::coroutine_handle<> waiter) noexcept;
    void await_resume() noexcept { resuming_ = false; }

   private:
    friend class Scope;
    std::coroutine_handle<> leave() noexcept;

    Scope& scope_;  // May have been destroyed once it is empty.
    std::coroutine_handle<> waiter_;
    Loop* loop_ = nullptr;
    bool linked_ = false;
    bool resuming_ = false;  // The loop is about to resume the waiter.
  };
  Join join() noexcept { return Join(*this); }

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
  Join* joiner_ = nullptr;
};

}  // namespace hawser
