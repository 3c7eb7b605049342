#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <stop_token>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "hawser/scope.h"
#include "hawser/task.h"

namespace hawser {

namespace detail {

template <class T>
using Unit = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

// Runs one task and stores its result or its exception.
template <class T>
Task<void> keep(Task<T> task, std::optional<Unit<T>>& out, std::exception_ptr& first_exception) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(task);
      out.emplace();
    } else {
      out.emplace(co_await std::move(task));
    }
  } catch (...) {
    if (!first_exception) first_exception = std::current_exception();
  }
}

}  // namespace detail

// Runs the tasks concurrently and returns all results in order; void becomes std::monostate. If a task throws, the
// others are still awaited, then the first exception is thrown.
template <class... T>
Task<std::tuple<detail::Unit<T>...>> when_all(Task<T>... tasks) {
  std::tuple<std::optional<detail::Unit<T>>...> kept;
  std::exception_ptr exception;
  Scope scope;
  std::apply([&](auto&... out) { (scope.spawn(detail::keep<T>(std::move(tasks), out, exception)), ...); }, kept);
  co_await scope.join();
  if (exception) std::rethrow_exception(exception);
  co_return std::apply([](auto&... out) { return std::tuple<detail::Unit<T>...>(std::move(*out)...); }, kept);
}

template <class T>
Task<std::vector<detail::Unit<T>>> when_all(std::vector<Task<T>> tasks) {
  std::vector<std::optional<detail::Unit<T>>> kept(tasks.size());
  std::exception_ptr exception;
  Scope scope;
  for (std::size_t i = 0; i < tasks.size(); ++i) scope.spawn(detail::keep<T>(std::move(tasks[i]), kept[i], exception));
  co_await scope.join();
  if (exception) std::rethrow_exception(exception);
  std::vector<detail::Unit<T>> results;
  results.reserve(kept.size());
  for (auto& one : kept) results.push_back(std::move(*one));
  co_return results;
}

// Catches everything but tasks.
template <class T>
Task<void> when_all(std::vector<T>) {
  static_assert(sizeof(T) == 0,
                "hawser: when_all() takes hawser::Tasks: wrap each call in a coroutine that awaits it, or use "
                "send_request() and await the pending calls in turn");
  return {};
}

// The result of when_any(): the index of the task that ended first, from 0, and its result. `index` equals
// result.index().
template <class... T>
struct First {
  std::size_t index;
  std::variant<detail::Unit<T>...> result;
};

// Runs the tasks concurrently. When the first one ends, requests a stop of `others` and awaits the other tasks too, so
// that no task is left running. Returns the first task's result or throws its exception. Results and exceptions of the
// other tasks are discarded. The tasks should take their stop token from `others`.
template <class... T>
Task<First<T...>> when_any(std::stop_source others, Task<T>... tasks) {
  std::tuple<std::optional<detail::Unit<T>>...> kept;
  std::optional<std::size_t> first;
  std::exception_ptr exception;
  Scope scope;
  auto race = []<class U>(Task<U> task, std::optional<detail::Unit<U>>& out, std::exception_ptr& error,
                          std::optional<std::size_t>& winner, std::size_t index, std::stop_source stop) -> Task<void> {
    std::exception_ptr thrown;
    co_await detail::keep<U>(std::move(task), out, thrown);
    if (winner) co_return;
    winner = index;
    error = std::move(thrown);
    stop.request_stop();
  };
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    (scope.spawn(race(std::move(tasks), std::get<index>(kept), exception, first, index, others)), ...);
  }(std::index_sequence_for<T...>{});
  co_await scope.join();
  if (exception) std::rethrow_exception(exception);
  std::optional<First<T...>> outcome;
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    ((index == *first ? (void)outcome.emplace(index, std::variant<detail::Unit<T>...>(
                                                         std::in_place_index<index>, std::move(*std::get<index>(kept))))
                      : (void)0),
     ...);
  }(std::index_sequence_for<T...>{});
  co_return std::move(*outcome);
}

}  // namespace hawser
