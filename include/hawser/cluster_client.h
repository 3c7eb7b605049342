#pragma once

#include <cstddef>
#include <cstdint>
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
#include "hawser/naming.h"
#include "hawser/retry.h"

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
  // Null: a budget of this client alone.
  std::shared_ptr<RetryBudget> retry_budget = {};
  // For Balancing::ring_hash and maglev: the name of the metadata of a call whose value is its key. A call without it
  // goes to any endpoint.
  std::string key_metadata = {};
  std::vector<NamingScheme> naming = default_naming();
  std::size_t connecting_max = 16;  // Endpoints to which connections are opened at the same time. At least 1.
  std::uint64_t seed = 0;           // Seed of choices and back-off. 0: each client uses a different one.
};

// One endpoint, as a ClusterClient sees it.
struct EndpointState {
  Endpoint endpoint;
  std::string_view reach;  // "idle", "connecting", "ready" or "failed".
  std::size_t connections = 0;
  std::size_t calls_in_flight = 0;
  std::optional<Duration> latency = {};  // By which p2c chooses; penalties for failures are part of it.
  Duration excluded_for = {};            // Remaining time of an exclusion as an outlier.
  std::string error = {};                // Why the last attempt to connect failed, while it has this state.
};

namespace detail {

// One attempt of a call: chooses an endpoint, and another one if the call certainly was not sent there.
class ClusterAttempt {
 public:
  struct State;
  ClusterAttempt(std::shared_ptr<State> state, CallOptions options);
  ClusterAttempt(ClusterAttempt&&) noexcept;
  ~ClusterAttempt();

  // Chooses an endpoint with a connection that accepts a call. False if there is none now: begin() waits.
  bool try_begin();
  Task<Result<void>> begin();
  Client& client() noexcept { return *client_; }
  // The timeout is what is left of the attempt.
  const CallOptions& options() const noexcept { return options_; }
  // Ends the call at the chosen endpoint. True if it shall be made at another one.
  bool end(const Error* error);

 private:
  struct Node;
  struct Tried;
  std::optional<Error> ended() const;
  Task<Result<void>> begin_at(std::shared_ptr<Node> node);
  void take(std::shared_ptr<Node> node, std::shared_ptr<Client> client);

  std::shared_ptr<State> state_;
  CallOptions options_;
  Time deadline_;                   // Time::max(): none.
  std::shared_ptr<Node> node_;      // The chosen endpoint, while the call is in flight there.
  std::shared_ptr<Client> client_;  // Its connection.
  Time began_{};
  std::unique_ptr<Tried> tried_;  // Null until an endpoint is avoided.
};

// Makes each attempt of a call for Retrying.
class ClusterAttempts {
 public:
  explicit ClusterAttempts(std::shared_ptr<ClusterAttempt::State> state) : state_(std::move(state)) {}

  template <auto F, class... Given>
  auto call(const CallOptions& options, Given&... arguments) {
    using Kept = AttemptedCall<F, Given...>;
    return CallTask<F, Kept>(std::make_unique<Kept>(ClusterAttempt(state_, options), arguments...));
  }
  template <auto F, class... Given>
  Task<Result<StreamingCall<F>>> open(const CallOptions& options, const Given&... arguments) {
    return run<Result<StreamingCall<F>>>(ClusterAttempt(state_, options), [&arguments...](ClusterAttempt& attempt) {
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
      return ClusterAttempts::run<typename Outcome::type>(std::move(call), [memory](
                                                                               std::unique_ptr<AttemptedCall>& kept) {
        ClusterAttempt& by = kept->attempt;
        return std::apply([&](auto&... one) { return call_by<Outcome, F>(by.client(), memory, by.options(), one...); },
                          kept->given);
      });
    }
    ClusterAttempt attempt;
    std::tuple<Given&...> given;
  };

  static ClusterAttempt& attempt_of(ClusterAttempt& attempt) noexcept { return attempt; }
  template <auto F, class... Given>
  static ClusterAttempt& attempt_of(std::unique_ptr<AttemptedCall<F, Given...>>& call) noexcept {
    return call->attempt;
  }

  // `make` begins a call of `kept`, which has or is the attempt, at the endpoint that was chosen.
  template <class R, class Kept, class Make>
  static Task<R> run(Kept kept, Make make) {
    ClusterAttempt& attempt = attempt_of(kept);
    for (;;) {
      if (!attempt.try_begin()) {
        Result<void> begun = co_await attempt.begin();
        if (!begun) co_return std::unexpected(std::move(begun.error()));
      }
      auto outcome = co_await make(kept);
      if (!attempt.end(detail::error_of_call(outcome))) co_return outcome;
    }
  }

  std::shared_ptr<ClusterAttempt::State> state_;
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
    return retrying_.template call<F>(std::move(options), std::forward<Given>(arguments)...);
  }
  template <auto F, class... Given>
  Task<Result<StreamingCall<F>>> make_open(CallOptions options, Given&&... arguments) {
    return retrying_.template open<F>(std::move(options), std::forward<Given>(arguments)...);
  }

  const std::shared_ptr<State> state_;
  const Duration call_timeout_;
  detail::ClusterAttempts attempts_;
  Retrying<detail::ClusterAttempts> retrying_;
};

}  // namespace hawser
