#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hawser/call_task.h"
#include "hawser/client_pool.h"
#include "hawser/cluster_options.h"
#include "hawser/detail/cluster_attempt.h"
#include "hawser/detail/cluster_call_record.h"
#include "hawser/detail/hedged_call.h"
#include "hawser/scope.h"
#include "hawser/service_config.h"
#include "hawser/when.h"

// Calls to a name: the servers behind it change, fail and return. Component hawser::cluster. See docs/clusters.md.
//
//   auto storage = hawser::ClusterClient::create("list:10.0.0.1:8000,10.0.0.2:8000");
//   auto reply = co_await (*storage)->call<read_block>(id);
namespace hawser {

class ClusterClient;

namespace detail {

// Makes the calls of a ClusterClient: attempts at one endpoint after the other, and pauses between them by the policy.
// The calls share it, and may outlive the client.
class ClusterCalls {
 public:
  // The references are valid as long as the state. `ended` is stopped when the client ends.
  ClusterCalls(std::shared_ptr<ClusterAttempt::State> state, const ClusterOptions& options,
               const std::stop_source& ended)
      : state_(std::move(state)), options_(options), ended_(ended) {}

  RetryBudget& budget() const noexcept { return *options_.retry_budget; }

  struct Method {
    std::string_view name;  // Valid as long as the call.
    std::uint32_t id;
  };
  template <auto F>
  static constexpr Method method_of{MethodFacts<F>::name, MethodFacts<F>::id};

  // The arguments that are lvalues are kept as references, the others as copies.
  template <auto F, class... Given>
  struct Kept : PooledFrame {
    explicit Kept(std::shared_ptr<const ClusterCalls> by, CallOptions&& with, Given&&... from)
        : calls(std::move(by)), options(std::move(with)), given(std::forward<Given>(from)...) {}
    // The call stays as it is until the task is awaited: into() moves it out of a task that is not awaited.
    template <class Outcome>
    static Task<typename Outcome::type> run(std::unique_ptr<Kept> call, MutableBytes memory) {
      return make<typename Outcome::type>(
          std::move(call), method_of<F>, memory.empty(),
          [memory](Kept& from, Client& client, const CallOptions& options) {
            return std::apply([&](auto&... one) { return call_by<Outcome, F>(client, memory, options, one...); },
                              from.given);
          });
    }
    std::shared_ptr<const ClusterCalls> calls;
    CallOptions options;
    std::tuple<Given...> given;
  };

  template <auto F, class... Given>
  static Task<Result<StreamingCall<F>>> open(std::shared_ptr<const ClusterCalls> by, CallOptions&& options,
                                             Given&&... arguments) {
    using Opening = Kept<F, Given...>;
    return make<Result<StreamingCall<F>>>(
        std::make_unique<Opening>(std::move(by), std::move(options), std::forward<Given>(arguments)...), method_of<F>,
        false, [](Opening& from, Client& client, const CallOptions& with) {
          return std::apply([&](const auto&... one) { return client.open<F>(with, one...); }, from.given);
        });
  }

  // A call that is made by a function of the caller.
  template <class Use>
  struct Made {
    std::shared_ptr<const ClusterCalls> calls;
    std::string method;
    CallOptions options;
    Use use;
  };
  template <class Use>
  static auto run(std::shared_ptr<const ClusterCalls> by, std::string_view method, CallOptions&& options, bool copies,
                  Use&& use) {
    using Call = Made<std::decay_t<Use>>;
    using R = std::invoke_result_t<std::decay_t<Use>&, Client&, const CallOptions&>::value_type;
    std::unique_ptr<Call> call(
        new Call{std::move(by), std::string(method), std::move(options), std::forward<Use>(use)});
    const Method named{call->method, codec::fnv1a32(method)};
    return make<R>(std::move(call), named, copies,
                   [](Call& from, Client& client, const CallOptions& with) { return from.use(client, with); });
  }

 private:
  // `begin` begins a call at an endpoint. With `copies`, it may be made at several endpoints at once.
  template <class R, class Call, class Begin>
  static Task<R> make(std::unique_ptr<Call> call, Method method, bool copies, Begin begin) {
    const ClusterCalls& by = *call->calls;
    ClusterCallRecord record(*by.state_, method.name);
    // With xDS, the routes come with the list.
    if (!ClusterAttempt::knows_list(*by.state_, method.name)) {
      co_await ClusterAttempt::await_list(*by.state_, method.name, call->options);
    }
    Result<ClusterAttempt::Route> route = ClusterAttempt::choose_route(by.state_, method.name, call->options);
    if (!route) {
      record.end(&route.error());
      co_return std::unexpected(std::move(route.error()));
    }
    const MethodConfig* const config = route->config;
    if (config != nullptr && config->timeout) {
      call->options.timeout = std::min(call->options.timeout.value_or(forever), *config->timeout);
    }
    RetryRun retries(config != nullptr && config->retry ? *config->retry : by.options_.retry, by.budget(),
                     std::move(call->options), by.ended_);
    for (;;) {
      std::optional<R> result;
      ClusterAttempt attempt(*route, retries.attempt_options(), method.name);
      if (copies && attempt.hedges()) {
        HedgedCall hedged(std::move(attempt), method.id, record);
        co_await hedge(hedged, *call, begin, result);
      } else {
        bool goes_on = true;
        if (attempt.try_begin()) {
          result.emplace(co_await begin(*call, attempt.client(), attempt.options()));
          goes_on = attempt.end(error_of_call(*result));
        }
        if (goes_on) result.emplace(co_await go_on<R>(attempt, *call, begin));
      }
      Error* const error = error_of_call(*result);
      if (error == nullptr) {
        by.budget().succeeded();
        record.end(nullptr);
        co_return std::move(*result);
      }
      record.begin_pause();
      const bool again = co_await retries.again(*error);
      if (!again) {
        record.end(error);
        co_return std::move(*result);
      }
      record.note_retry();
      const Result<void> routed =
          ClusterAttempt::follow_routes(*route, by.state_, method.name, retries.attempt_options());
      if (!routed) {
        record.end(&routed.error());
        co_return std::unexpected(routed.error());
      }
    }
  }

  // Makes an attempt at the endpoint that it has, or waits for one; then at further ones.
  template <class R, class Call, class Begin>
  static Task<R> go_on(ClusterAttempt& attempt, Call& call, Begin& begin) {
    for (;;) {
      if (!attempt.begun()) {
        Result<void> begun = co_await attempt.begin();
        if (!begun) co_return std::unexpected(std::move(begun.error()));
      }
      auto outcome = co_await begin(call, attempt.client(), attempt.options());
      if (!attempt.end(error_of_call(outcome))) co_return outcome;
    }
  }

  // Makes copies of the call until one has a result. Those that are in flight then end with their coroutines.
  template <class R, class Call, class Begin>
  static Task<void> hedge(HedgedCall& hedged, Call& call, Begin& begin, std::optional<R>& result) {
    std::exception_ptr exception;
    Scope copies;
    while (ClusterAttempt* const copy = co_await hedged.next()) {
      copies.spawn(run_copy(hedged, call, begin, copy, result, exception));
    }
    copies.clear();
    if (exception) std::rethrow_exception(exception);
  }
  template <class R, class Call, class Begin>
  static Task<void> run_copy(HedgedCall& hedged, Call& call, Begin& begin, ClusterAttempt* copy,
                             std::optional<R>& result, std::exception_ptr& exception) {
    std::optional<R> outcome;
    co_await keep(go_on<R>(*copy, call, begin), outcome, exception);
    if (!outcome) {
      hedged.stop();
    } else if (hedged.end(*copy, error_of_call(*outcome))) {
      result = std::move(outcome);
    }
  }

  std::shared_ptr<ClusterAttempt::State> state_;
  const ClusterOptions& options_;
  const std::stop_source& ended_;
};

}  // namespace detail

// Makes calls to the endpoints of a name. Connections are opened when the balancing chooses an endpoint for a call, and
// closed when they are idle. Belongs to one loop and its thread: several loops have one client each. When it is
// destroyed, its calls and streams end with an error, wherever they are, as those of a Client.
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

  // Makes one call by a function, such as a call of a method that is known at run time only. `use(client, options)`
  // returns a Task<Result<T>>, and so does this. It is called once for each attempt, with the options of the attempt.
  // It must not keep the client. Attempts may run at the same time (ClusterOptions::hedging) unless `copies` is false.
  // The endpoint, retries and limits are as those of call(); `method` is the name by which a service config has options
  // of the call. With streams, the task ends when the call is open. A timeout of `forever` means no deadline.
  template <class Use>
  auto send_request(std::string_view method, CallOptions options, Use&& use, bool copies = true) {
    if (!options.timeout) options.timeout = call_timeout_;
    return detail::ClusterCalls::run(calls_, method, std::move(options), copies, std::forward<Use>(use));
  }

  // The list, its age and why it may be old.
  const NamingState& naming() const noexcept;
  // In the order of the list; then those of the other clusters of the name (hawser/naming_routes.h).
  std::vector<EndpointState> endpoints() const;
  const RetryBudget& retry_budget() const noexcept { return calls_->budget(); }

 private:
  friend class detail::TaskCaller<ClusterClient>;
  friend class detail::DestructionNotice;
  using State = detail::ClusterAttempt::State;
  explicit ClusterClient(std::shared_ptr<State> state);
  template <auto F, class... Given>
  auto make_call(CallOptions options, Given&&... arguments) {
    if (!options.timeout) options.timeout = call_timeout_;
    using Kept = detail::ClusterCalls::Kept<F, Given...>;
    return CallTask<F, Kept>(std::make_unique<Kept>(calls_, std::move(options), std::forward<Given>(arguments)...));
  }
  template <auto F, class... Given>
  Task<Result<StreamingCall<F>>> make_open(CallOptions options, Given&&... arguments) {
    return detail::ClusterCalls::open<F, Given...>(calls_, std::move(options), std::forward<Given>(arguments)...);
  }

  std::stop_token destruction_token() { return destruction_.token(); }

  detail::DestructionNotice destruction_;
  const std::shared_ptr<State> state_;
  const Duration call_timeout_;
  const std::shared_ptr<const detail::ClusterCalls> calls_;
};

}  // namespace hawser
