#include "hawser/cluster_client.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "cluster/cluster_state.h"
#include "cluster/route_choice.h"
#include "cluster/routed_clusters.h"
#include "rpc/client/client_protocol.h"
#include "rpc/client/limited_wait.h"
#include "rpc/client/pool_access.h"

namespace hawser {
namespace detail {
namespace {

using cluster::Judgement;

// Metadata of all attempts and copies of a call but the first one: their number before it, as over gRPC.
constexpr std::string_view attempts_name = "grpc-previous-rpc-attempts";
// A call that certainly was not sent is made at this number of further endpoints.
constexpr unsigned repeats_max = 2;
// A call that waits for a first connection asks for one to a further endpoint after this time (RFC 8305, section 5).
constexpr Duration connect_stagger = std::chrono::milliseconds(250);

// Statuses of gRPC are codes of the application, because the handler may have run. These two say how the server is.
Judgement judge_status(std::int32_t status) noexcept {
  switch (status) {
    case 8: return Judgement::pushback;  // RESOURCE_EXHAUSTED
    case 14: return Judgement::failure;  // UNAVAILABLE
    default: return Judgement::success;
  }
}

Judgement judge(const Error* error, const rpc::ClientProtocol* protocol) noexcept {
  if (error == nullptr) return Judgement::success;
  switch (error->code) {
    case ErrorCode::cancelled: return Judgement::none;
    case ErrorCode::overloaded: return error->initiator == Initiator::peer ? Judgement::pushback : Judgement::none;
    case ErrorCode::deadline_exceeded:
    case ErrorCode::not_sent:
    case ErrorCode::outcome_unknown:
    case ErrorCode::unavailable:
    case ErrorCode::protocol_error:
    case ErrorCode::internal: return Judgement::failure;
    case ErrorCode::application:
      if (protocol != nullptr && protocol->name() == "grpc") return judge_status(error->application_code);
      return Judgement::success;
    default: return Judgement::success;
  }
}

// Null: the method has no options.
const MethodConfig* method_config(const std::shared_ptr<const ServiceConfig>& config, std::string_view method) {
  return config == nullptr ? nullptr : config->find(method);
}

}  // namespace

ClusterAttempt::ClusterAttempt(const Route& route, CallOptions options, std::string_view method)
    : state_(route.cluster),
      options_(std::move(options)),
      method_(method),
      route_(&route),
      deadline_(options_.timeout ? state_->loop.after(*options_.timeout) : Time::max()) {
  // A client of gRPC sends it by itself.
  if (options_.earlier_attempts != 0 && state_->options.pool.client.protocol == nullptr) {
    // A copy begins with the metadata of its original.
    std::erase_if(options_.metadata, [](const auto& entry) { return entry.first == attempts_name; });
    options_.metadata.emplace_back(attempts_name, std::to_string(options_.earlier_attempts));
  }
}
ClusterAttempt::ClusterAttempt(ClusterAttempt&&) noexcept = default;
ClusterAttempt::~ClusterAttempt() {
  if (node_ != nullptr) leave(Ending::withdrawn, nullptr);
}

Result<ClusterAttempt::Route> ClusterAttempt::choose_route(const std::shared_ptr<State>& state, std::string_view method,
                                                           const CallOptions& options) {
  Route chosen{.cluster = state, .service_config = state->service_config, .routes = state->routes};
  chosen.config = method_config(chosen.service_config, method);
  if (chosen.routes == nullptr) return chosen;
  const NamingRoutes::Route* const route = state->route_index->find(method, options.metadata, state->random);
  if (route == nullptr) {
    return fail(Error::of_call(ErrorCode::unavailable, "no route of " + state->name + " matches the call"));
  }
  if (chosen.service_config == nullptr) chosen.config = &route->config;
  chosen.keys = &route->keys;
  const std::size_t index = cluster::choose_cluster(*route, state->random);
  if (const auto& other = state->clusters->at(index)) chosen.cluster = other;
  return chosen;
}

Result<void> ClusterAttempt::follow_routes(Route& route, const std::shared_ptr<State>& state, std::string_view method,
                                           const CallOptions& options) {
  if (route.routes != nullptr || state->routes == nullptr) return {};
  TRY(Route now, choose_route(state, method, options));
  route.cluster = std::move(now.cluster);
  route.keys = now.keys;
  route.routes = std::move(now.routes);
  if (route.config == nullptr) {  // Otherwise the call goes on with the policy of retries with which it has begun.
    route.config = now.config;
    route.service_config = std::move(now.service_config);
  }
  return {};
}

bool ClusterAttempt::knows_list(const State& state, std::string_view method) {
  if (state.ended != nullptr || state.naming->state().version != 0) return true;
  if (!state.naming->state().error) return false;
  const MethodConfig* const config = method_config(state.service_config, method);
  return config == nullptr || !config->wait_for_ready;
}

Task<void> ClusterAttempt::await_list(State& state, std::string_view method, CallOptions& options) {
  const Time begin = state.loop.now();
  Time deadline = options.timeout ? state.loop.after(*options.timeout) : Time::max();
  // The timeout of the method counts from the begin of the call, too, unless it arrives with the list.
  const auto over = [&] {
    const MethodConfig* const config = method_config(state.service_config, method);
    if (config != nullptr && config->timeout && *config->timeout < deadline - begin)
      deadline = begin + *config->timeout;
    return state.loop.now() >= deadline;
  };
  while (!knows_list(state, method) && !over() && !options.token.stop_requested()) {
    rpc::LimitedWait wait(state.loop, state.changed, deadline, options.token);
    co_await wait.end();
  }
  if (deadline != Time::max()) options.timeout = std::max(deadline - state.loop.now(), Duration::zero());
}

void ClusterAttempt::take(std::shared_ptr<Node> node, std::shared_ptr<Client> client) {
  began_ = state_->loop.now();
  if (deadline_ != Time::max()) options_.timeout = std::max(deadline_ - began_, Duration::zero());
  state_->balancer.begin_call(*node, began_);
  node->called = true;
  ++state_->calls_in_flight;
  node_ = std::move(node);
  client_ = std::move(client);
  if (state_->metrics) state_->metrics->begin_attempt(method_);
}

bool ClusterAttempt::try_begin() {
  State& state = *state_;
  if (state.ended != nullptr || state.loop.now() >= deadline_) return false;
  if (!std::exchange(asked_, true)) refusal_ = state.why_dropped();
  if (refusal_ == nullptr) refusal_ = state.why_full();
  if (refusal_ != nullptr) return false;
  const std::uint64_t key = state.key_of(options_, route_->keys);
  bool connects = false;  // A call asks for one connection at a time.
  for (;;) {
    std::span<const cluster::Backend* const> avoided;
    if (tried_) avoided = tried_->backends;
    const auto choice = state.balancer.choose(state.loop.now(), key, avoided);
    if (choice.idle != nullptr && !std::exchange(connects, true)) state.connect(static_cast<Node&>(*choice.idle));
    if (choice.ready == nullptr) return false;
    Node& node = static_cast<Node&>(*choice.ready);
    if (PoolAccess::usable(*node.pool) == 0) {  // It was lost, or closed because nobody used it.
      state.on_lost(node);
      continue;
    }
    if (std::shared_ptr<Client> client = PoolAccess::try_acquire(*node.pool)) {
      take(node.shared_from_this(), std::move(client));
      return true;
    }
    avoid(node.shared_from_this());
    if (tried_->full == nullptr) tried_->full = node.shared_from_this();
  }
}

std::optional<Error> ClusterAttempt::ended() const {
  if (state_->ended != nullptr) return Error::of_connection(ErrorCode::unavailable, state_->ended);
  if (options_.token.stop_requested()) return Error::of_call(ErrorCode::cancelled, "the caller cancelled the call");
  if (state_->loop.now() < deadline_) return std::nullopt;
  return Error::of_call(ErrorCode::deadline_exceeded,
                        "no endpoint of " + state_->name + " within the call's timeout; the call was not sent");
}

Task<Result<void>> ClusterAttempt::begin() {
  for (;;) {
    if (std::optional<Error> over = ended()) co_return fail(std::move(*over));
    if (try_begin()) co_return Result<void>();
    if (refusal_ != nullptr) co_return refused();
    if (tried_ && tried_->full != nullptr) co_return co_await begin_at(std::move(tried_->full));
    const MethodConfig* const config = route_->config;
    const bool waits = config != nullptr && config->wait_for_ready && !(tried_ && tried_->error);
    if (std::optional<Error> why = state_->why_none(tried_.get())) {
      if (!waits || why->code != ErrorCode::unavailable) co_return fail(std::move(*why));
    }
    // An endpoint that does not answer must not hold the call up: after a while it asks for another connection, too.
    const Time until = std::min(deadline_, state_->loop.after(connect_stagger));
    rpc::LimitedWait wait(state_->loop, state_->changed, until, options_.token);
    co_await wait.end();
  }
}

Result<void> ClusterAttempt::refused() const {
  Error error = Error::of_call(ErrorCode::overloaded, state_->name + ": " + refusal_);
  error.retry_after = Duration(-1);  // Another attempt would be a further call for the name.
  return fail(std::move(error));
}

// Every endpoint that could be chosen has as many calls as its connections accept: waits for a place at one of them.
Task<Result<void>> ClusterAttempt::begin_at(std::shared_ptr<Node> node) {
  CallOptions limits{.timeout = forever, .token = options_.token};
  if (deadline_ != Time::max()) limits.timeout = std::max(deadline_ - state_->loop.now(), Duration::zero());
  const std::shared_ptr<ClientPool> pool = node->pool;
  if (pool == nullptr) co_return fail(Error::of_connection(ErrorCode::unavailable, "the endpoint was lost"));
  auto client = co_await PoolAccess::acquire(*pool, std::move(limits));
  if (!client) co_return fail(std::move(client.error()));
  refusal_ = state_->why_full();  // Others began meanwhile.
  if (refusal_ != nullptr) co_return refused();
  take(std::move(node), std::move(*client));
  co_return Result<void>();
}

bool ClusterAttempt::hedges() const noexcept { return options_.idempotent && hedging().attempts_max > 1; }

const HedgeOptions& ClusterAttempt::hedging() const noexcept {
  const MethodConfig* const config = route_->config;
  return config != nullptr && config->hedging ? *config->hedging : state_->options.hedging;
}

void ClusterAttempt::avoid(std::shared_ptr<Node> node) {
  if (!tried_) tried_ = std::make_unique<Tried>();
  tried_->add(std::move(node));
}

void ClusterAttempt::leave(Ending ending, const Error* error) {
  const rpc::ClientProtocol* const protocol = state_->options.pool.client.protocol.get();
  Judgement judgement = Judgement::slow;
  if (ending == Ending::withdrawn) judgement = Judgement::none;
  if (ending == Ending::result) judgement = judge(error, protocol);
  const Time now = state_->loop.now();
  --state_->calls_in_flight;
  const bool judged = state_->balancer.end_call(*node_, judgement, now - began_, now);
  if (!state_->metrics) return;
  const std::int32_t status = ending == Ending::result ? state_->status_of(error) : cluster::status_cancelled;
  state_->metrics->end_attempt(method_, status, now - began_);
  if (judged) state_->metrics->note_ejections(state_->balancer.ejections(*node_));
}

void ClusterAttempt::lose() {
  leave(Ending::slower_than_a_copy, nullptr);
  node_.reset();
}

bool ClusterAttempt::end(const Error* error) {
  if (node_ == nullptr) return false;  // lose() has ended it: a copy had its result in the same turn of the loop.
  leave(Ending::result, error);
  const std::shared_ptr<Node> node = std::move(node_);
  if (hedges()) used_ = node;
  client_.reset();
  const bool not_sent =
      error != nullptr && (error->code == ErrorCode::not_sent || error->code == ErrorCode::unavailable);
  if (!not_sent || ended()) return false;
  if (!tried_) tried_ = std::make_unique<Tried>();
  if (tried_->repeats++ == repeats_max) return false;
  tried_->full.reset();
  tried_->add(node);
  tried_->error = *error;
  return true;
}

}  // namespace detail

ClusterClient::ClusterClient(std::shared_ptr<State> state)
    : state_(std::move(state)),
      call_timeout_(state_->options.pool.client.call_timeout),
      calls_(std::make_shared<const detail::ClusterCalls>(state_, state_->options, state_->ending)) {}

ClusterClient::~ClusterClient() {
  destruction_.send();
  state_->end("the client was destroyed");
  state_->forget_name();
}

Result<std::unique_ptr<ClusterClient>> ClusterClient::create(std::string_view name, ClusterOptions options) {
  Loop* const loop = Loop::current();
  if (loop == nullptr) {
    return fail(ErrorCode::invalid_argument,
                "no loop runs on this thread: create a ClusterClient within one, or name the loop");
  }
  return create(*loop, name, std::move(options));
}

Result<std::unique_ptr<ClusterClient>> ClusterClient::create(Loop& loop, std::string_view name,
                                                             ClusterOptions options) {
  RetryThrottling throttling;
  if (options.service_config) {
    options.balancing.kind = options.service_config->balancing().value_or(options.balancing.kind);
    throttling = options.service_config->retry_throttling().value_or(throttling);
  }
  if (options.retry_budget == nullptr) {
    options.retry_budget = std::make_shared<RetryBudget>(throttling.tokens_max, throttling.tokens_per_success);
  }
  auto state = std::make_shared<State>(loop, std::string(name), std::move(options));
  state->target = state->shown_name();
  TRY(state->start());
  return std::unique_ptr<ClusterClient>(new ClusterClient(std::move(state)));
}

const NamingState& ClusterClient::naming() const noexcept { return state_->naming->state(); }

std::vector<EndpointState> ClusterClient::endpoints() const {
  std::vector<EndpointState> states;
  const auto add = [&states](const State& state) {
    for (const auto& backend : state.balancer.backends()) {
      states.push_back(state.state_of(static_cast<const State::NodeOf&>(*backend)));
    }
  };
  add(*state_);
  if (state_->clusters) {
    for (const auto& other : state_->clusters->all()) {
      if (other != nullptr) add(*other);
    }
  }
  return states;
}

}  // namespace hawser
