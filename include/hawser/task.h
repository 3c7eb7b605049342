#pragma once

#include <coroutine>
#include <utility>

#include "hawser/detail/task_promise.h"

namespace hawser {

// A coroutine that starts when it is awaited, runs on the loop of the awaiter, and returns a T. The task owns the
// coroutine's frame. Destroying an unfinished task ends the coroutine where it is suspended; every awaitable of this
// library allows that, also after the end of its loop. An exception that leaves the coroutine is thrown to the awaiter.
template <class T>
class [[nodiscard("a task does nothing until it is awaited")]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;
  using value_type = T;

  Task() noexcept = default;
  explicit Task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool valid() const noexcept { return handle_ != nullptr; }
  bool done() const noexcept { return handle_.done(); }
  // For the library: true once the task has been awaited.
  bool awaited() const noexcept { return handle_.promise().continuation != nullptr; }
  // For the library: identifies this coroutine.
  const void* frame() const noexcept { return handle_.address(); }

  // Starts the coroutine and resumes the awaiter when it ends. A task is awaited once: a second time ends the process
  // with a message.
  auto operator co_await() && noexcept {
    struct Awaiter {
      std::coroutine_handle<promise_type> handle;
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) const noexcept {
        if (!handle || handle.promise().continuation) [[unlikely]]
          detail::awaited_again();
        handle.promise().continuation = awaiting;
        return handle;
      }
      T await_resume() const { return handle.promise().take(); }
    };
    return Awaiter{handle_};
  }
  auto operator co_await() & noexcept {
    static_assert(sizeof(promise_type) == 0,
                  "hawser: a Task is awaited once, which uses it up: write `co_await std::move(task)` for a named one");
    return std::move(*this).operator co_await();
  }

 private:
  std::coroutine_handle<promise_type> handle_;
};

template <class T>
Task<T> detail::TaskPromise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<TaskPromise>::from_promise(*this));
}
inline Task<void> detail::TaskPromise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<TaskPromise>::from_promise(*this));
}

}  // namespace hawser
