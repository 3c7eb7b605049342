#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hawser/balancing.h"
#include "hawser/call_task.h"
#include "hawser/client_pool.h"
#include "hawser/cluster_monitor.h"
#include "hawser/detail/hedged_call.h"
#include "hawser/hedging.h"
#include "hawser/naming.h"
#include "hawser/retry.h"
#include "hawser/scope.h"
#include "hawser/service_config.h"
#include "hawser/when.h"

// Calls to a name: the servers behind it change, fail and return. Component hawser::cluster. See docs/clusters.md.
//
//   auto storage = hawser::ClusterClient::create("list:10.0.0.1:8000,10.0.0.2:8000");
//   auto reply = co_await (*storage)->call<read_block>(id);
namespace hawser {

class ClusterClient;

struct ClusterOptions {
  // Connections to one endpoint. The back-off of this pool is also that between attempts to connect to an endpoint.
  PoolOptions pool = {};
  BalancingOptions balancing = {};
  // Which calls are made again, and when. A call that certainly was not sent is made at another endpoint at once,
  // without this policy and its budget.
  RetryPolicy retry = {};
  // Null: a budget of this client alone. It limits copies by `hedging`, too.
  std::shared_ptr<RetryBudget> retry_budget = {};
  HedgeOptions hedging = {};
  // Its fields take the place of `retry`, `hedging` and `balancing.kind`, and of a null `retry_budget`.
  std::optional<ServiceConfig> service_config = {};
  // For Balancing::ring_hash and maglev: the name of the metadata of a call whose value is its key. A call without it
  // goes to any endpoint.
  std::string key_metadata = {};
  std::vector<NamingScheme> naming = default_naming();
  // Shows the client on the page /channels and in metrics. Empty: nothing is counted.
  std::optional<ClusterMonitor> monitor = {};
  std::size_t connecting_max = 16;  // Endpoints to which connections are opened at the same time. At least 1.
  std::uint64_t seed = 0;           // Seed of choices and back-off. 0: each client uses a different one.
};

namespace detail {

// One attempt of a call: chooses an endpoint, and another one if the call certainly was not sent there.
class ClusterAttempt {
 public:
  struct State;
  // `config` may be null. It lives as long as the state, and `method` longer.
  ClusterAttempt(std::shared_ptr<State> state, CallOptions options, std::string_view method,
                 const MethodConfig* config);
  ClusterAttempt(ClusterAttempt&&) noexcept;
  ~ClusterAttempt();

  // Chooses an endpoint with a connection that accepts a call. False if there is none now: begin() waits.
  bool try_begin();
  bool begun() const noexcept { return client_ != nullptr; }
  Task<Result<void>> begin();
  Client& client() noexcept { return *client_; }
  // The timeout is what is left of the attempt.
  const CallOptions& options() const noexcept { return options_; }
  // Ends the call at the chosen endpoint. True if it shall be made at another one.
  bool end(const Error* error);
  // True if the call may have copies (HedgeOptions).
  bool hedges() const noexcept;

 private:
  friend class HedgedCall;
  struct Node;
  struct Tried;
  const HedgeOptions& hedging() const noexcept;
  // The endpoint where the call is or was made. Null before, and after the end of a call that has no copies.
  const std::shared_ptr<Node>& node() const noexcept { return node_ != nullptr ? node_ : used_; }
  void avoid(std::shared_ptr<Node> node);
  // The call is withdrawn because a copy of it had its result earlier.
  void lose();
  std::optional<Error> ended() const;
  Task<Result<void>> begin_at(std::shared_ptr<Node> node);
  void take(std::shared_ptr<Node> node, std::shared_ptr<Client> client);
  // Reports the end of the call at the chosen endpoint.
  enum class Ending : std::uint8_t { result, withdrawn, slower_than_a_copy };
  void leave(Ending ending, const Error* error);

  std::shared_ptr<State> state_;
  CallOptions options_;
  std::string_view method_;
  const MethodConfig* config_;
  Time deadline_;                   // Time::max(): none.
  std::shared_ptr<Node> node_;      // The chosen endpoint, while the call is in flight there.
  std::shared_ptr<Client> client_;  // Its connection.
  Time began_{};
  std::unique_ptr<Tried> tried_;  // Null until an endpoint is avoided.
  std::shared_ptr<Node> used_;    // The endpoint at which a call that may have copies ended.
};

// Makes each attempt of a call for Retrying.
class ClusterAttempts {
 public:
  // `config` may be null; it lives as long as the state.
  ClusterAttempts(std::shared_ptr<ClusterAttempt::State> state, const ServiceConfig* config)
      : state_(std::move(state)), config_(config) {}

  const MethodConfig* config_of(std::string_view method) const {
    return config_ == nullptr ? nullptr : config_->find(method);
  }
  const RetryPolicy* retry_policy(std::string_view method) const {
    const MethodConfig* const config = config_of(method);
    return config != nullptr && config->retry ? &*config->retry : nullptr;
  }

  template <auto F, class... Given>
  auto call(const CallOptions& options, Given&... arguments) {
    using Kept = AttemptedCall<F, Given...>;
    return CallTask<F, Kept>(std::make_unique<Kept>(attempt<F>(options), arguments...));
  }
  template <auto F, class... Given>
  Task<Result<StreamingCall<F>>> open(const CallOptions& options, const Given&... arguments) {
    return run<Result<StreamingCall<F>>>(attempt<F>(options), [&arguments...](ClusterAttempt& attempt) {
      return attempt.client().template open<F>(attempt.options(), arguments...);
    });
  }

 private:
  // The arguments outlive the attempt: Retrying keeps them.
  template <auto F, class... Given>
  struct AttemptedCall : PooledFrame {
    explicit AttemptedCall(ClusterAttempt by, Given&... from) : attempt(std::move(by)), given(from...) {}
    // The call stays as it is until the task is awaited: into() moves it out of a task that is not awaited.
    template <class Outcome>
    static Task<typename Outcome::type> run(std::unique_ptr<AttemptedCall> call, MutableBytes memory) {
      if (memory.empty() && call->attempt.hedges()) return hedge<typename Outcome::type, Outcome>(std::move(call));
      return ClusterAttempts::run<typename Outcome::type>(std::move(call), [memory](
                                                                               std::unique_ptr<AttemptedCall>& kept) {
        ClusterAttempt& by = kept->attempt;
        return std::apply([&](auto&... one) { return call_by<Outcome, F>(by.client(), memory, by.options(), one...); },
                          kept->given);
      });
    }
    // Makes copies of the call until one has a result. Those that are in flight then end with their coroutines.
    template <class R, class Outcome>
    static Task<R> hedge(std::unique_ptr<AttemptedCall> call) {
      HedgedCall hedged(std::move(call->attempt), MethodFacts<F>::id);
      std::optional<R> result;
      std::exception_ptr exception;
      Scope copies;
      while (ClusterAttempt* const copy = co_await hedged.next()) {
        copies.spawn(run_copy<R, Outcome>(*call, hedged, copy, result, exception));
      }
      copies.clear();
      if (exception) std::rethrow_exception(exception);
      co_return std::move(*result);
    }
    template <class R, class Outcome>
    static Task<void> run_copy(AttemptedCall& call, HedgedCall& hedged, ClusterAttempt* copy, std::optional<R>& result,
                               std::exception_ptr& exception) {
      std::optional<R> outcome;
      co_await keep(ClusterAttempts::run<R>(copy,
                                            [&call](ClusterAttempt* by) {
                                              return std::apply(
                                                  [&](auto&... one) {
                                                    return call_by<Outcome, F>(by->client(), {}, by->options(), one...);
                                                  },
                                                  call.given);
                                            }),
                    outcome, exception);
      if (!outcome) {
        hedged.stop();
      } else if (hedged.end(*copy, error_of_call(*outcome))) {
        result = std::move(outcome);
      }
    }
    ClusterAttempt attempt;
    std::tuple<Given&...> given;
  };

  template <auto F>
  ClusterAttempt attempt(const CallOptions& options) const {
    return ClusterAttempt(state_, options, MethodFacts<F>::name, config_of(MethodFacts<F>::name));
  }
  static ClusterAttempt& attempt_of(ClusterAttempt& attempt) noexcept { return attempt; }
  static ClusterAttempt& attempt_of(ClusterAttempt* attempt) noexcept { return *attempt; }
  template <auto F, class... Given>
  static ClusterAttempt& attempt_of(std::unique_ptr<AttemptedCall<F, Given...>>& call) noexcept {
    return call->attempt;
  }

  // `make` begins a call of `kept`, which has or is the attempt, at the endpoint that was chosen.
  template <class R, class Kept, class Make>
  static Task<R> run(Kept kept, Make make) {
    ClusterAttempt& attempt = attempt_of(kept);
    for (;;) {
      if (!attempt.begun() && !attempt.try_begin()) {
        Result<void> begun = co_await attempt.begin();
        if (!begun) co_return std::unexpected(std::move(begun.error()));
      }
      auto outcome = co_await make(kept);
      if (!attempt.end(detail::error_of_call(outcome))) co_return outcome;
    }
  }

  std::shared_ptr<ClusterAttempt::State> state_;
  const ServiceConfig* config_;
};

}  // namespace detail

// Makes calls to the endpoints of a name. Connections are opened when the balancing chooses an endpoint for a call, and
// closed when they are idle. Belongs to one loop and its thread, and must outlive its calls: several loops have one
// client each.
//
// Its call() is as that of Client; see CallTask for reply(), into() and with_outcome(). Arguments that are lvalues must
// stay valid until the call has ended. CallOptions::timeout, or else ClientOptions::call_timeout of the options, limits
// the call with its search for an endpoint, its retries and their pauses. A call is never executed twice, unless
// CallOptions::idempotent is set. Its open() is as that of Client. Only the opening is made again. The stream belongs
// to the endpoint that was chosen; the balancing does not count it as a call in flight.
class ClusterClient : public detail::TaskCaller<ClusterClient> {
 public:
  // On the loop that runs on the calling thread, or on `loop`. Fails with `invalid_argument` if the name is malformed
  // or an option is out of its range. An endpoint need not be reachable, and a list need not be known yet.
  static Result<std::unique_ptr<ClusterClient>> create(std::string_view name, ClusterOptions options = {});
  static Result<std::unique_ptr<ClusterClient>> create(Loop& loop, std::string_view name, ClusterOptions options = {});
  ClusterClient(const ClusterClient&) = delete;
  ClusterClient& operator=(const ClusterClient&) = delete;
  ~ClusterClient();

  // The list, its age and why it may be old.
  const NamingState& naming() const noexcept;
  // In the order of the list.
  std::vector<EndpointState> endpoints() const;
  const RetryBudget& retry_budget() const noexcept { return retrying_.budget(); }

 private:
  friend class detail::TaskCaller<ClusterClient>;
  using State = detail::ClusterAttempt::State;
  ClusterClient(std::shared_ptr<State> state, RetryPolicy policy, std::shared_ptr<RetryBudget> budget);
  template <auto F, class... Given>
  auto make_call(CallOptions options, Given&&... arguments) {
    if (!options.timeout) options.timeout = call_timeout_;
    return retrying_.template call<F>(configured<F>(std::move(options)), std::forward<Given>(arguments)...);
  }
  template <auto F, class... Given>
  Task<Result<StreamingCall<F>>> make_open(CallOptions options, Given&&... arguments) {
    return retrying_.template open<F>(configured<F>(std::move(options)), std::forward<Given>(arguments)...);
  }
  template <auto F>
  CallOptions configured(CallOptions options) const {
    if (const MethodConfig* const config = attempts_.config_of(detail::MethodFacts<F>::name)) {
      if (config->timeout) options.timeout = std::min(options.timeout.value_or(forever), *config->timeout);
    }
    return options;
  }

  const std::shared_ptr<State> state_;
  const Duration call_timeout_;
  detail::ClusterAttempts attempts_;
  Retrying<detail::ClusterAttempts> retrying_;
};

}  // namespace hawser
