#pragma once

#include <stop_token>
#include <type_traits>
#include <utility>

#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/when.h"

namespace hawser {

// Runs `work(token)`, which gives a Task<Result<T>>, and requests a stop of `token` when `duration` has passed. `work` is always awaited to
// its end, so nothing runs on: a `work` that ignores its token takes as long as it takes. Gives deadline_exceeded if the time ran
// out first, else what `work` gave. `token` is stopped too when `parent` is. Loop's thread only; `work` lives until it has ended.
template <class Work>
auto with_timeout(Duration duration, Work work, std::stop_token parent = {})
    -> std::remove_cvref_t<decltype(work(std::stop_token()))> {
  Loop& loop = *Loop::current();
  std::stop_source stop;
  const std::stop_callback forward(parent, [&stop] { stop.request_stop(); });
  auto sleeping = loop.sleep(duration, stop.get_token());
  auto working = work(stop.get_token());
  auto first = when_any(stop, std::move(working), std::move(sleeping));
  auto outcome = co_await std::move(first);
  if (outcome.index == 0) co_return std::move(std::get<0>(outcome.result));
  if (parent.stop_requested()) co_return fail(ErrorCode::cancelled, "a stop was requested");
  co_return fail(ErrorCode::deadline_exceeded, "with_timeout(): the time has run out");
}

}  // namespace hawser
