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
struct Error;

namespace detail {

// Allocates coroutine frames from the calling thread's pool (src/heap/frame_pool.cpp), with sanitizers from the heap.
void* allocate_frame(std::size_t bytes);
void free_frame(void* frame, std::size_t bytes) noexcept;

// A Task is awaited although it was awaited or moved from before. Ends the process with a message.
[[noreturn]] void awaited_again() noexcept;

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

// `co_await AwaitingFrame()` returns the frame of the coroutine that awaits the current Task<void>.
struct AwaitingFrame {
  const void* frame = nullptr;
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> self) noexcept {
    frame = self.promise().continuation.address();
    return false;
  }
  const void* await_resume() const noexcept { return frame; }
};

struct TaskPromiseBase : PooledFrame {
  std::suspend_always initial_suspend() const noexcept { return {}; }
  ResumeContinuation final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { exception = std::current_exception(); }

  std::coroutine_handle<> continuation;  // Null until the task is awaited.
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
  void return_value(const Error&)
    requires(!std::is_constructible_v<T, const Error&>)
  {
    static_assert(sizeof(T) == 0,
                  "hawser: a coroutine fails by `co_return hawser::fail(code, text)`, or by `co_return "
                  "std::unexpected(error)` for an Error that it has");
  }
  T take() {
    if (exception) std::rethrow_exception(exception);
    return std::move(*result);
  }
  std::optional<T> result;
};

// The members make the compiler report only the sentence.
template <class T>
  requires std::is_reference_v<T>
struct TaskPromise<T> : TaskPromiseBase {
  static_assert(sizeof(T) == 0,
                "hawser: a Task returns no reference: write `hawser::Task<T>` for a value, or return a pointer, a "
                "std::string_view or a std::span of memory that lives longer than the task");
  Task<T> get_return_object() noexcept;
  void return_value(T) const noexcept {}
  T take() const;
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

}  // namespace hawser
