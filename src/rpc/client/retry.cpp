#include "hawser/retry.h"

#include <cmath>

#include "base/decimal_text.h"
#include "exec/condition.h"
#include "hawser/any_stop.h"
#include "hawser/detail/loop_access.h"
#include "rpc/client/limited_wait.h"

namespace hawser {
namespace {

// As Loop::sleep(), but any thread may stop the tokens.
Task<void> pause_until(Loop& loop, Time time, std::stop_token token, std::stop_token ended) {
  const AnyStop stop(token, ended);
  exec::Condition never(loop);
  while (!stop.token().stop_requested() && loop.now() < time) {
    rpc::LimitedWait wait(loop, never, time, stop.token());
    co_await wait.end();
  }
}

}  // namespace

bool RetryPolicy::lists(const Error& error) const noexcept {
  if (error.code == ErrorCode::application) {
    return std::ranges::find(application_codes, error.application_code) != application_codes.end();
  }
  return std::ranges::find(codes, error.code) != codes.end();
}

RetryBudget::RetryBudget(double tokens_max, double tokens_per_success)
    : tokens_max_(tokens_max), tokens_per_success_(tokens_per_success), tokens_(tokens_max) {
  if (!(tokens_max > 0 && tokens_max <= 1000)) {
    throw std::invalid_argument("hawser: RetryBudget: tokens_max is " + short_text(tokens_max, 6) +
                                ", and must be more than 0 and at most 1000");
  }
  if (!(tokens_per_success >= 0)) {
    throw std::invalid_argument("hawser: RetryBudget: tokens_per_success is " + short_text(tokens_per_success, 6) +
                                ", and must be at least 0");
  }
}

namespace detail {

RetryRun::RetryRun(const RetryPolicy& policy, RetryBudget& budget, CallOptions options, const std::stop_source& ended)
    : policy_(policy), budget_(budget), options_(std::move(options)), ended_(ended), loop_(*Loop::current()) {
  if (options_.timeout && *options_.timeout < forever) end_ = loop_.after(*options_.timeout);
}

CallOptions RetryRun::attempt_options() const {
  CallOptions attempt = options_;
  attempt.earlier_attempts += attempts_ - 1;
  if (end_) attempt.timeout = std::max(*end_ - loop_.now(), Duration::zero());
  return attempt;
}

bool RetryRun::retriable(const Error& error) const noexcept {
  return (error.not_executed() || options_.idempotent) && policy_.lists(error);
}

Duration RetryRun::backoff() const noexcept {
  const auto most = static_cast<double>(policy_.backoff_max.count());
  const double pause = std::min(
      most, static_cast<double>(policy_.backoff_first.count()) * std::pow(policy_.backoff_factor, attempts_ - 1));
  // Calls that failed together must not be made again together.
  const double spread =
      static_cast<double>(LoopAccess::random(loop_) >> 11) / static_cast<double>(std::uint64_t{1} << 53) * 2 - 1;
  return Duration(static_cast<Duration::rep>(std::max(0.0, pause * (1 + spread * policy_.jitter))));
}

void RetryRun::finish(Error& error) const {
  if (attempts_ == 1) return;
  error.text += " (attempt " + std::to_string(attempts_) + ")";
  if (!maybe_executed_ || !error.not_executed()) return;
  error.code = ErrorCode::outcome_unknown;
  error.text += "; an earlier attempt may have been executed";
}

std::optional<Duration> RetryRun::after_failure(Error& error) {
  const std::optional<Duration> pushback = error.retry_after;
  const bool again = retriable(error);
  if (again) budget_.failed();
  const bool forbidden = pushback && *pushback < Duration::zero();
  if (again && !forbidden && !ended_.stop_requested() && attempts_ < policy_.attempts_max && budget_.may_retry()) {
    const Duration pause = pushback ? *pushback : backoff();
    if (!end_ || loop_.after(pause) < *end_) {
      maybe_executed_ = maybe_executed_ || !error.not_executed();
      ++attempts_;
      return pause;
    }
  }
  finish(error);
  return std::nullopt;
}

bool RetryRun::was_destroyed(Error& error) {
  if (!ended_.stop_requested()) return false;
  --attempts_;  // The next one is not made.
  finish(error);
  error.text += "; the object that would make another attempt was destroyed";
  return true;
}

Task<bool> RetryRun::again(Error& error) {
  const std::optional<Duration> pause = after_failure(error);
  if (!pause) co_return false;
  co_await pause_until(loop_, loop_.after(*pause), options_.token, ended_.get_token());
  if (was_destroyed(error)) co_return false;
  if (options_.token.stop_requested()) {
    error = Error::of_call(ErrorCode::cancelled,
                           "the caller cancelled the call before attempt " + std::to_string(attempts_));
    co_return false;
  }
  if (!policy_.before_retry) co_return true;
  try {
    co_await policy_.before_retry();
  } catch (const std::exception&) {
    // The attempt follows, and shows whether it can succeed.
  }
  co_return !was_destroyed(error);
}

}  // namespace detail
}  // namespace hawser
