#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hawser/call_task.h"
#include "hawser/caller.h"
#include "hawser/client.h"
#include "hawser/detail/destruction_notice.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/task.h"
#include "hawser/time.h"

// Calls that are made again when they fail. Not part of hawser.h. docs/guide has a chapter about errors; the section
// "Retries" of docs/protocols/grpc.md states what is particular to gRPC.
//
//   hawser::Retrying retrying(client);          // A Client, a ClientPool or a ClusterClient.
//   auto reply = co_await retrying.call<f>(options, x);
//   demo::ShopService::Stub stub(retrying);
namespace hawser {

// Decides which calls are made again, and when. An error is retried if its code is listed here, and if the call was
// certainly not executed (Error::not_executed()) or CallOptions::idempotent is set.
struct RetryPolicy {
  unsigned attempts_max = 3;  // With the first one. 1: no retries.
  // The pause before attempt n is backoff_first * backoff_factor^(n-2), at most backoff_max, and differs from that by
  // at most the part `jitter` of it in either direction.
  Duration backoff_first = std::chrono::milliseconds(50);
  Duration backoff_max = std::chrono::seconds(2);
  double backoff_factor = 2;
  double jitter = 0.2;
  std::vector<ErrorCode> codes = {ErrorCode::overloaded, ErrorCode::not_sent, ErrorCode::unavailable,
                                  ErrorCode::outcome_unknown};
  // Codes of ErrorCode::application that are retried, for idempotent calls only. Over gRPC: statuses, such as 14
  // (UNAVAILABLE).
  std::vector<std::int32_t> application_codes = {};
  // Runs before each attempt except the first one, for example to connect again. Exceptions that it throws are
  // ignored: the attempt follows.
  std::function<Task<void>()> before_retry = {};

  // True if `codes` or `application_codes` has the error.
  bool lists(const Error& error) const noexcept;
};

// Limits the retries of many calls together, so that retries do not keep a server overloaded. Each retriable failure
// takes one token, and each success gives `tokens_per_success` back. There are no retries while at most half of the
// tokens are left. Used by the loops of one thread.
class RetryBudget {
 public:
  // Throws std::invalid_argument unless 0 < tokens_max <= 1000 and tokens_per_success >= 0.
  explicit RetryBudget(double tokens_max = 100, double tokens_per_success = 0.1);

  void failed() noexcept { tokens_ = std::max(0.0, tokens_ - 1); }
  void succeeded() noexcept { tokens_ = std::min(tokens_max_, tokens_ + tokens_per_success_); }
  bool may_retry() const noexcept { return tokens_ > tokens_max_ / 2; }
  double tokens() const noexcept { return tokens_; }

 private:
  double tokens_max_;
  double tokens_per_success_;
  double tokens_;
};

namespace detail {

// The decisions of one call, without types of methods.
class RetryRun {
 public:
  // The references outlive this object. A stop of `ended` forbids further attempts: who makes them was destroyed.
  RetryRun(const RetryPolicy& policy, RetryBudget& budget, CallOptions options, const std::stop_source& ended);

  // The options of the next attempt: `timeout` is what is left of the whole call's.
  CallOptions attempt_options() const;
  // Decides after an attempt that failed, and waits until the next one. False if `error`, which it may change, is the
  // result of the call.
  Task<bool> again(Error& error);

 private:
  // The pause before the next attempt, or nothing if there is none.
  std::optional<Duration> after_failure(Error& error);
  bool retriable(const Error& error) const noexcept;
  // Ends the call between two attempts if `ended` is stopped.
  bool was_destroyed(Error& error);
  void finish(Error& error) const;
  Duration backoff() const noexcept;

  const RetryPolicy& policy_;
  RetryBudget& budget_;
  const CallOptions options_;
  const std::stop_source& ended_;
  Loop& loop_;
  std::optional<Time> end_;
  unsigned attempts_ = 1;
  bool maybe_executed_ = false;
};

}  // namespace detail

// Makes calls through a client or a pool, and makes them again by a policy. CallOptions::timeout limits
// the call with all its attempts and pauses; without it, each attempt has the client's own default. The error of a call
// is true of all its attempts: if one of them may have been executed, the code does not claim otherwise. Interceptors
// of `via` run for each attempt (docs/interceptors.md). Used on the thread of `via`. When this object is destroyed,
// attempts in flight go on, and calls between two attempts end with the error of the last one. When `via`, a client of
// this library, is destroyed first, its attempts in flight end with an error, calls between two attempts end with the
// error of the last one, and later calls fail with `not_sent`. A Caller of another kind must outlive this object.
//
// Its call() is as that of ClientPool; see CallTask for reply(), into() and with_outcome(). Arguments that are lvalues
// must stay valid until the task has ended. Its open() begins a call with streams, as open() of `via`. Only the opening
// is made again, while no StreamingCall has been returned: nothing of the stream has been sent or received then. Errors
// that arrive later are final, also a refusal by the server: next(), write() and finish() return them.
// CallOptions::timeout limits the attempts and the stream together. An opening that succeeds is a success for the
// budget.
template <Caller Via>
class Retrying : public detail::TaskCaller<Retrying<Via>> {
 public:
  explicit Retrying(Via& via, RetryPolicy policy = {}, std::shared_ptr<RetryBudget> budget = {})
      : state_(std::make_shared<State>(via, std::move(policy),
                                       budget != nullptr ? std::move(budget) : std::make_shared<RetryBudget>())) {}
  Retrying(const Retrying&) = delete;
  Retrying& operator=(const Retrying&) = delete;
  ~Retrying() { state_->ended.request_stop(); }

  const RetryBudget& budget() const noexcept { return *state_->budget; }

 private:
  friend class detail::TaskCaller<Retrying>;
  friend class detail::DestructionNotice;

  // The calls share it.
  struct State {
    State(Via& by, RetryPolicy with, std::shared_ptr<RetryBudget> within)
        : via(by),
          policy(std::move(with)),
          budget(std::move(within)),
          via_destroyed(detail::DestructionNotice::of(by), Stop{ended}) {}
    Via& via;  // Used until `ended` is stopped.
    const RetryPolicy policy;
    const std::shared_ptr<RetryBudget> budget;
    std::stop_source ended;  // Stopped by the destruction of the Retrying or of `via`.
    struct Stop {
      std::stop_source& source;
      void operator()() const noexcept { source.request_stop(); }
    };
    const std::stop_callback<Stop> via_destroyed;
  };

  // Lvalues are kept as references, the others as copies.
  template <auto F, class... Given>
  struct RetriedCall : detail::PooledFrame {
    explicit RetriedCall(std::shared_ptr<State> by, CallOptions with, Given&&... from)
        : state(std::move(by)), options(std::move(with)), given(std::forward<Given>(from)...) {}
    template <class Outcome>
    static Task<typename Outcome::type> run(std::unique_ptr<RetriedCall> call, MutableBytes memory) {
      std::shared_ptr<State> state = call->state;
      CallOptions options = call->options;
      auto calling = [kept = std::move(call), memory](const CallOptions& attempt) {
        return std::apply(
            [&](auto&... one) { return detail::call_by<Outcome, F>(kept->state->via, memory, attempt, one...); },
            kept->given);
      };
      return Retrying::repeat<typename Outcome::type>(std::move(state), std::move(options), std::move(calling));
    }
    std::shared_ptr<State> state;
    CallOptions options;
    std::tuple<Given...> given;
  };

  template <auto F, class... Given>
  auto make_call(CallOptions options, Given&&... arguments) {
    using Kept = RetriedCall<F, Given...>;
    return CallTask<F, Kept>(std::make_unique<Kept>(state_, std::move(options), std::forward<Given>(arguments)...));
  }

  template <auto F, class... Given>
  Task<Result<StreamingCall<F>>> make_open(CallOptions options, Given&&... arguments) {
    Via& via = state_->via;
    auto opening = [&via, given = std::tuple<Given...>(std::forward<Given>(arguments)...)](const CallOptions& attempt) {
      return std::apply([&](const auto&... one) { return via.template open<F>(attempt, one...); }, given);
    };
    return repeat<Result<StreamingCall<F>>>(state_, std::move(options), std::move(opening));
  }

  // `attempt(options)` returns an awaitable of R.
  template <class R, class Attempt>
  static Task<R> repeat(std::shared_ptr<State> state, CallOptions given, Attempt attempt) {
    if (state->ended.stop_requested()) {
      co_return std::unexpected(Error::of_call(
          ErrorCode::not_sent, "the Retrying of this call, or its client, was destroyed before the call began"));
    }
    detail::RetryRun run(state->policy, *state->budget, std::move(given), state->ended);
    while (true) {
      auto result = co_await attempt(run.attempt_options());
      Error* const error = detail::error_of_call(result);
      if (error == nullptr) {
        state->budget->succeeded();
        co_return result;
      }
      const bool again = co_await run.again(*error);
      if (!again) co_return result;
    }
  }

  std::stop_token destruction_token() { return state_->ended.get_token(); }

  const std::shared_ptr<State> state_;
};

}  // namespace hawser
