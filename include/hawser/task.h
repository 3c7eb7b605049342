#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace hawser {

template <class T = void>
class Task;

namespace detail {

// Coroutine frames come from the calling thread's pool; see src/base/frame_pool.h. Frames that a sanitizer should
// watch come from the allocator.
void* allocate_frame(std::size_t bytes);
void free_frame(void* frame, std::size_t bytes) noexcept;

struct PooledFrame {
  static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
  static void operator delete(void* frame, std::size_t bytes) noexcept { free_frame(frame, bytes); }
};

struct ResumeContinuation {
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> done) const noexcept {
    return done.promise().continuation;
  }
  void await_resume() const noexcept {}
};

struct TaskPromiseBase : PooledFrame {
  std::suspend_always initial_suspend() const noexcept { return {}; }
  ResumeContinuation final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { exception = std::current_exception(); }

  std::coroutine_handle<> continuation = std::noop_coroutine();
  std::exception_ptr exception;
};

template <class T>
struct TaskPromise : TaskPromiseBase {
  Task<T> get_return_object() noexcept;
  template <class U>
    requires std::is_constructible_v<T, U&&>
  void return_value(U&& value) {
    result.emplace(std::forward<U>(value));
  }
  T take() {
    if (exception) std::rethrow_exception(exception);
    return std::move(*result);
  }
  std::optional<T> result;
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  Task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void take() const {
    if (exception) std::rethrow_exception(exception);
  }
};

}  // namespace detail

// A coroutine that runs when it is awaited, on the loop of the awaiter, and gives a T. Owns its frame: dropping an
// unfinished task ends it where it is suspended, which every awaitable of this library allows. An exception that
// leaves the coroutine is thrown to the awaiter.
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

  // Starts the coroutine and resumes the awaiter when it ends. Await a task once.
  auto operator co_await() && noexcept {
    struct Awaiter {
      std::coroutine_handle<promise_type> handle;
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) const noexcept {
        handle.promise().continuation = awaiting;
        return handle;
      }
      T await_resume() const { return handle.promise().take(); }
    };
    return Awaiter{handle_};
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
