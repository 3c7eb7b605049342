#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "hawser/error.h"
#include "hawser/scope.h"
#include "hawser/task.h"
#include "hawser/when.h"

// Many calls of which not all must succeed: writes to replicas, reads of partitions, a notice to all servers.
//
//   std::stop_source others;
//   std::vector<hawser::Task<hawser::Result<void>>> writes;
//   for (hawser::Client& replica : replicas) writes.push_back(write(replica, record, others.get_token()));
//   const auto written = co_await hawser::when_quorum({.successes = 2}, others, std::move(writes));
//   if (!written.reached) co_return written.failure();
namespace hawser {

// When a group of tasks is over, and how many of them run.
struct Quorum {
  // The group is over when so many tasks have succeeded. 0: all of them must.
  std::size_t successes = 0;
  // The group is over when more tasks have failed. Never more than leave `successes` possible, which is the default.
  std::size_t failures_max = SIZE_MAX;
  // At most so many tasks run at the same time; the next one begins when one has ended. At least 1.
  std::size_t parallel_max = SIZE_MAX;
};

template <class T>
struct QuorumOutcome {
  bool reached = false;  // As many tasks as Quorum::successes demands have succeeded.
  // The result of each task, in their order. A task that had not begun when the group was over has failed with
  // `not_sent`, one that was stopped as it reports it, which is `cancelled` for a call.
  std::vector<Result<T>> results;

  std::size_t successes() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(results, [](const auto& one) { return one.has_value(); }));
  }
  // The first failure that is not the consequence of another one. Call it if `reached` is false.
  Error failure() const {
    const Error* first = nullptr;
    for (const Result<T>& one : results) {
      if (one || (first != nullptr && !is_consequence(*first))) continue;
      if (first == nullptr || !is_consequence(one.error())) first = &one.error();
    }
    return first != nullptr ? *first : Error::of_call(ErrorCode::invalid_argument, "the group has too few tasks");
  }

 private:
  static bool is_consequence(const Error& error) noexcept {
    return error.code == ErrorCode::cancelled || error.code == ErrorCode::not_sent;
  }
};

namespace detail {

// A group of tasks in progress. The coroutine of when_quorum() owns it.
template <class T>
class QuorumGroup {
 public:
  QuorumGroup(const Quorum& quorum, std::stop_source others, std::vector<Task<Result<T>>> tasks)
      : others_(std::move(others)),
        tasks_(std::move(tasks)),
        results_(tasks_.size()),
        needed_(quorum.successes == 0 ? tasks_.size() : quorum.successes),
        failures_max_(needed_ > tasks_.size() ? 0 : std::min(quorum.failures_max, tasks_.size() - needed_)) {
    over_ = needed_ > tasks_.size() || needed_ == 0;
  }

  // Runs one task after another until none is left, or the group is over.
  Task<void> run() {
    while (!over_ && next_ < tasks_.size()) {
      const std::size_t index = next_++;
      std::exception_ptr thrown;
      co_await keep<Result<T>>(std::move(tasks_[index]), results_[index], thrown);
      if (thrown && !thrown_) thrown_ = thrown;
      if (over_) co_return;
      const bool succeeded = !thrown && results_[index]->has_value();
      over_ = thrown || (succeeded ? ++successes_ == needed_ : ++failures_ > failures_max_);
      if (over_) others_.request_stop();
    }
  }

  std::size_t tasks() const noexcept { return tasks_.size(); }
  QuorumOutcome<T> outcome() {
    if (thrown_) std::rethrow_exception(thrown_);
    QuorumOutcome<T> outcome{.reached = needed_ <= tasks_.size() && successes_ >= needed_, .results = {}};
    outcome.results.reserve(results_.size());
    for (std::optional<Result<T>>& one : results_) {
      outcome.results.push_back(
          one ? std::move(*one)
              : Result<T>(fail(Error::of_call(ErrorCode::not_sent, "not begun: the group was over before"))));
    }
    return outcome;
  }

 private:
  std::stop_source others_;
  std::vector<Task<Result<T>>> tasks_;
  std::vector<std::optional<Result<T>>> results_;
  const std::size_t needed_;
  const std::size_t failures_max_;
  std::size_t next_ = 0;  // The task that begins next.
  std::size_t successes_ = 0;
  std::size_t failures_ = 0;
  bool over_ = false;
  std::exception_ptr thrown_;
};

}  // namespace detail

// Runs the tasks concurrently until the quorum is reached or impossible. Then requests a stop of `others` and awaits
// the tasks that run, so that none is left running; those that have not begun never do. The tasks should take their
// stop token from `others`. A quorum of more tasks than there are is not reached, and none begins. If a task throws,
// the group is over, and the first exception is thrown when the others have ended.
template <class T>
Task<QuorumOutcome<T>> when_quorum(Quorum quorum, std::stop_source others, std::vector<Task<Result<T>>> tasks) {
  detail::QuorumGroup<T> group(quorum, std::move(others), std::move(tasks));
  Scope scope;
  const std::size_t parallel = std::min(std::max<std::size_t>(quorum.parallel_max, 1), group.tasks());
  for (std::size_t i = 0; i < parallel; ++i) scope.spawn(group.run());
  co_await scope.join();
  co_return group.outcome();
}

}  // namespace hawser
