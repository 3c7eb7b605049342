#pragma once

#include <stop_token>
#include <type_traits>
#include <utility>

#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/task.h"
#include "hawser/timer.h"

namespace hawser {

namespace detail {

// Requests a stop when the time has passed.
class StopTimer {
 public:
  StopTimer(Loop& loop, Duration duration, std::stop_source& stop) noexcept : stop_(stop) {
    timer_.start(loop, loop.after(duration));
  }
  // True if the time passed before anybody else requested the stop.
  bool expired() const noexcept { return expired_; }

 private:
  void on_time() noexcept {
    std::stop_source stop = stop_;  // A copy: a stop callback may destroy the timer.
    expired_ = !stop.stop_requested();
    stop.request_stop();
  }

  std::stop_source& stop_;
  bool expired_ = false;
  MemberTimer<&StopTimer::on_time> timer_{*this};
};

template <class Work>
auto run_with_timeout(Duration duration, Work work, std::stop_token parent)
    -> Task<typename std::invoke_result_t<Work&, std::stop_token>::value_type> {
  Loop* const loop = Loop::current();
  if (loop == nullptr) {
    co_return fail(ErrorCode::invalid_argument,
                   "with_timeout() runs outside of a loop; run it by Loop::run() or sync_wait()");
  }
  std::stop_source stop;
  const std::stop_callback forward(parent, [&stop] { std::stop_source(stop).request_stop(); });
  const StopTimer timer(*loop, duration, stop);
  auto working = work(stop.get_token());
  try {
    auto outcome = co_await std::move(working);
    if (!timer.expired()) co_return outcome;
  } catch (...) {
    if (!timer.expired()) throw;
  }
  co_return fail(ErrorCode::deadline_exceeded, "with_timeout(): the time has run out");
}

}  // namespace detail

// Runs `work(token)`, which returns a Task<Result<T>>. Requests a stop of `token` when `duration` has passed or a stop
// of `parent` is requested. `work` is always awaited to its end, so a `work` that ignores its token delays the result.
// Returns deadline_exceeded if the time passed before `work` ended and before `parent` was stopped; the result or
// exception of `work` is discarded then. Otherwise returns the result of `work`. Loop's thread only. `work` lives until
// it has ended.
template <class Work>
auto with_timeout(Duration duration, Work&& work, std::stop_token parent = {}) {
  return detail::run_with_timeout<std::decay_t<Work>>(duration, std::forward<Work>(work), std::move(parent));
}

}  // namespace hawser
