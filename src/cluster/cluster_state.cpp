#include "cluster/cluster_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <new>
#include <utility>

#include "base/decimal_text.h"
#include "base/escaped_text.h"
#include "base/try.h"
#include "cluster/route_choice.h"
#include "cluster/routed_clusters.h"
#include "cluster/xxh64.h"
#include "rpc/client/client_protocol.h"
#include "rpc/client/pool_access.h"

namespace hawser::detail {
namespace {

using cluster::Reach;

// Period in which the pools that get no further calls are examined.
constexpr Duration close_interval = std::chrono::seconds(1);
// Until work of the balancer that found no memory is tried again.
constexpr Duration balance_pause = std::chrono::seconds(1);
constexpr std::size_t ring_points_most = 65'536;

Result<void> in_range(bool holds, const char* text) {
  if (holds) return {};
  return fail(ErrorCode::invalid_argument, std::string("ClusterOptions::") + text);
}

Result<void> check(const LoadWeightOptions& weights) {
  constexpr Duration interval_min = std::chrono::milliseconds(100);
  TRY(in_range(weights.update >= interval_min, "balancing.load_weights.update must be at least 100 ms"));
  constexpr Duration interval_max = std::chrono::hours(24);
  TRY(in_range(weights.out_of_band == Duration::zero() ||
                   (weights.out_of_band >= interval_min && weights.out_of_band <= interval_max),
               "balancing.load_weights.out_of_band must be 0 or from 100 ms to 24 h"));
  TRY(in_range(weights.blackout >= Duration::zero() && weights.expiry > Duration::zero(),
               "balancing.load_weights.blackout must not be negative, and expiry positive"));
  return in_range(weights.error_penalty >= 0 && std::isfinite(weights.error_penalty),
                  "balancing.load_weights.error_penalty must be 0 or more, and finite");
}

Result<void> check(const ClusterOptions& options) {
  const BalancingOptions& balancing = options.balancing;
  TRY(in_range(options.connecting_max >= 1, "connecting_max is 0: it must be at least 1"));
  TRY(in_range(options.retry.attempts_max >= 1, "retry.attempts_max is 0: it must be at least 1"));
  TRY(in_range(balancing.choices >= 2 && balancing.choices <= 10, "balancing.choices must be from 2 to 10"));
  TRY(in_range(balancing.load_max == 0 || balancing.load_max >= 1, "balancing.load_max must be 0 or at least 1"));
  TRY(in_range(balancing.ring_points_min >= 1 && balancing.ring_points_min <= balancing.ring_points_max &&
                   balancing.ring_points_max <= ring_points_most,
               "balancing.ring_points_min and ring_points_max must be from 1 to 65,536, in this order"));
  TRY(in_range(balancing.ring_points_each <= ring_points_most, "balancing.ring_points_each must be at most 65,536"));
  TRY(in_range(balancing.latency_decay > Duration::zero(), "balancing.latency_decay must be positive"));
  TRY(in_range(balancing.slow_start >= Duration::zero(), "balancing.slow_start must not be negative"));
  TRY(in_range(balancing.panic_threshold >= 0 && balancing.panic_threshold <= 1,
               "balancing.panic_threshold must be from 0 to 1"));
  TRY(in_range(balancing.zone_reserve >= 1, "balancing.zone_reserve must be at least 1"));
  TRY(in_range(balancing.breaker.base_time > Duration::zero() && balancing.breaker.time_max > Duration::zero(),
               "balancing.breaker.base_time and time_max must be positive"));
  if (balancing.load_weights) TRY(check(*balancing.load_weights));
  if (balancing.endpoint_limit) TRY(cluster::ConcurrencyLimit::check(*balancing.endpoint_limit));
  const HedgeOptions& hedging = options.hedging;
  TRY(in_range(hedging.attempts_max >= 1 && hedging.attempts_max <= 5, "hedging.attempts_max must be from 1 to 5"));
  TRY(in_range(hedging.percentile >= 0.5 && hedging.percentile <= 0.999,
               "hedging.percentile must be from 0.5 to 0.999"));
  TRY(in_range(hedging.delay_min > Duration::zero() && (!hedging.delay || *hedging.delay >= Duration::zero()),
               "hedging.delay_min must be positive, and hedging.delay not negative"));
  TRY(in_range(hedging.budget > 0 && hedging.budget <= 1, "hedging.budget must be above 0 and at most 1"));
  return in_range(balancing.outliers.excluded_max >= 0 && balancing.outliers.excluded_max <= 1,
                  "balancing.outliers.excluded_max must be from 0 to 1");
}

std::string_view to_string(Reach reach) noexcept {
  switch (reach) {
    case Reach::idle: return "idle";
    case Reach::connecting: return "connecting";
    case Reach::ready: return "ready";
    case Reach::failed: break;
  }
  return "failed";
}

std::string_view to_string(Balancing kind) noexcept {
  switch (kind) {
    case Balancing::p2c: return "p2c";
    case Balancing::least_request: return "least_request";
    case Balancing::round_robin: return "round_robin";
    case Balancing::weighted_round_robin: return "weighted_round_robin";
    case Balancing::random: return "random";
    case Balancing::ring_hash: return "ring_hash";
    case Balancing::maglev: return "maglev";
    case Balancing::pick_first: break;
  }
  return "pick_first";
}

}  // namespace

void ClusterAttempt::Node::end_pause() noexcept {
  state.set_reach(*this, Reach::idle);
  state.changed.notify_all();
}

ClusterAttempt::State::State(Loop& on, std::string with_name, ClusterOptions with)
    : loop(on),
      name(std::move(with_name)),
      options(std::move(with)),
      random(options.seed != 0 ? options.seed : LoopAccess::random(on)),
      balancer(options.balancing, random.next(), [this] { return std::make_shared<Node>(*this); }),
      changed(on),
      connecting(std::max<std::size_t>(options.connecting_max, 1)) {}

ClusterAttempt::State::~State() {
  if (monitored != 0) ClusterMonitorAccess::state(*options.monitor)->remove(monitored);
  if (uses_loop) LoopAccess::remove_user(loop, *this);
}

Result<void> ClusterAttempt::State::start() {
  TRY(check(options));
  TRY(naming, Naming::open(loop, name, options.naming, [this] { on_naming(); }, [this] { on_confirmed(); }));
  LoopAccess::add_user(loop, *this);
  uses_loop = true;
  if (options.service_config) service_config = std::make_shared<const ServiceConfig>(*options.service_config);
  if (options.monitor) {
    const auto& monitor = ClusterMonitorAccess::state(*options.monitor);
    metrics.emplace(monitor->metrics, target);
    monitored = monitor->add(loop, weak_from_this());
  }
  on_naming();
  on_confirmed();
  load.begin();
  return {};
}

void ClusterAttempt::State::end(const char* why) {
  if (ended != nullptr) return;
  ended = why;
  ending.request_stop();
  if (clusters) clusters->end(why);
  if (monitored != 0) ClusterMonitorAccess::state(*options.monitor)->remove(monitored);
  monitored = 0;
  metrics.reset();
  builder.stop();
  policy_taker.stop();
  load.end();
  scope.clear();
  closer.stop();
  // Calls that wait for a place of a pool keep it.
  for (const auto& pool : std::exchange(closing, {})) PoolAccess::end(*pool, why);
  const auto end_node = [why](const std::shared_ptr<cluster::Backend>& backend) {
    Node& node = static_cast<Node&>(*backend);
    node.pause.stop();
    if (const auto pool = std::exchange(node.pool, nullptr)) PoolAccess::end(*pool, why);
  };
  while (balancer.has_left()) balancer.take_left(end_node);
  std::ranges::for_each(balancer.backends(), end_node);
  changed.notify_all();
}

void ClusterAttempt::State::on_loop_end() noexcept {
  uses_loop = false;
  end("the loop of this client has ended: use a Loop that lives longer");
}

void ClusterAttempt::State::on_naming() {
  if (naming == nullptr) return;  // Within Naming::open().
  if (!options.service_config) service_config = naming->state().service_config;
  take_policy();
  if (list_version != naming->state().version) {
    list_version = naming->state().version;
    balancer.begin_update(naming->state().endpoints);
    if (std::exchange(updates_at_once, false)) finish_update();  // Calls go to the new main cluster already.
  }
  balance();
  show_endpoints();
  changed.notify_all();
}

void ClusterAttempt::State::on_confirmed() {
  if (monitored == 0 || naming == nullptr) return;  // The latter within Naming::open().
  const NamingState& list = naming->state();
  if (list.constant || list.version == 0) return;
  ClusterMonitorAccess::state(*options.monitor)->confirm(monitored, target, list.confirmed);
}

void ClusterAttempt::State::forget_name() noexcept {
  naming.reset();
  if (clusters) clusters->forget_names();
}

// Without memory the routes and the policy before them stay. They are taken later.
void ClusterAttempt::State::take_policy() noexcept {
  if (naming == nullptr) return;
  try {
    apply_routes(naming->state().routes);
    apply_policy(naming->state().policy);
  } catch (const std::bad_alloc&) {
    policy_taker.start(loop, loop.after(balance_pause));
  }
}

void ClusterAttempt::State::apply_routes(const std::shared_ptr<const NamingRoutes>& named) {
  if (routes == named) return;
  cluster::RouteIndex index(*named);
  if (!clusters) clusters = std::make_unique<RoutedClusters>(*this);
  clusters->update(*named);
  // Nothing below needs memory.
  updates_at_once = routes != nullptr && routes->clusters[routes->main] != named->clusters[named->main];
  route_index.emplace(std::move(index));
  routes = named;
}

void ClusterAttempt::State::apply_policy(const std::shared_ptr<const NamingPolicy>& named) {
  if (policy == named) return;
  BalancingOptions with = options.balancing;
  if (named->balancing) {
    with.kind = *named->balancing;
    with.choices = named->choices;
    with.load_max = 0;
    with.ring_points_min = named->ring_points_min;
    with.ring_points_max = named->ring_points_max;
    with.ring_points_each = 0;  // The ring of the other clients of the control plane.
  }
  if (named->outliers) with.outliers = *named->outliers;
  if (named->load_weights && check(*named->load_weights)) with.load_weights = *named->load_weights;
  balancer.set_options(with);
  load.begin();
  policy = named;
}

// Without memory nothing is taken.
void ClusterAttempt::State::forget_left() {
  closing.reserve(closing.size() + cluster::ListUpdate::endpoints_of_step);
  balancer.take_left([this](const std::shared_ptr<cluster::Backend>& backend) {
    Node& node = static_cast<Node&>(*backend);
    node.pause.stop();
    close_later(node);
  });
}

// In one step. Without memory, balance() goes on later.
void ClusterAttempt::State::finish_update() noexcept {
  try {
    while (balancer.updates()) balancer.work();
  } catch (const std::bad_alloc&) {
    return;
  }
}

// Continues in the next ticks, between other work of the loop.
void ClusterAttempt::State::balance() {
  builder.stop();
  const bool updates = balancer.updates();
  try {
    const bool more = balancer.work();
    forget_left();
    if (more) builder.start(loop, loop.after(Duration(1)));
  } catch (const std::bad_alloc&) {
    builder.start(loop, loop.after(balance_pause));  // The list and the tables that are whole serve meanwhile.
  }
  if (!updates || balancer.updates()) return;
  show_endpoints();
  changed.notify_all();
}

// ---- Reports ----

std::int32_t ClusterAttempt::State::status_of(const Error* error) const {
  const rpc::ClientProtocol* const protocol = options.pool.client.protocol.get();
  return cluster::status_of(error, protocol != nullptr && protocol->name() == "grpc");
}

// Names may be anything that a naming scheme accepts. The registry would cut a longer one without a sign.
std::string ClusterAttempt::State::shown_name() const {
  std::string shown;
  append_escaped(shown, name, MetricRegistry::label_bytes_max);
  return shown;
}

void ClusterAttempt::State::show_endpoints() {
  if (!metrics) return;
  metrics->show({balancer.count(Reach::idle), balancer.count(Reach::connecting), balancer.count(Reach::ready),
                 balancer.count(Reach::failed)});
}

void ClusterAttempt::State::set_reach(Node& node, Reach reach) {
  balancer.set_reach(node, reach, loop.now());
  show_endpoints();
}

EndpointState ClusterAttempt::State::state_of(const Node& node) const {
  const Time now = loop.now();
  EndpointState one{.endpoint = node.endpoint,
                    .reach = to_string(node.reach),
                    .standing = balancer.standing(node, now),
                    .connections = node.pool == nullptr ? 0 : node.pool->connections(),
                    .calls_in_flight = node.in_flight,
                    .error = node.error};
  if (node.latency.measured()) {
    one.latency = Duration(static_cast<Duration::rep>(node.latency.value(now, options.balancing.latency_decay)));
  }
  if (node.limit != nullptr) one.calls_in_flight_max = node.in_flight_max;
  if (node.load_weight > 0) one.weight_by_load = node.load_weight;
  one.breaker_open_for = node.breaker.open_for(now);
  if (node.ejected(now)) one.excluded_for = node.ejected_until - now;
  return one;
}

rpc::ClusterReport ClusterAttempt::State::report(std::size_t from, std::size_t limit) const {
  if (ended != nullptr) return {};  // Posted before the end. Without a name, it is the report of no client.
  const auto& backends = balancer.backends();
  rpc::ClusterReport report{.name = shown_name(),
                            .balancing = to_string(balancer.options().kind),
                            .endpoints = backends.size(),
                            .idle = balancer.count(Reach::idle),
                            .connecting = balancer.count(Reach::connecting),
                            .ready = balancer.count(Reach::ready),
                            .failed = balancer.count(Reach::failed),
                            .excluded = balancer.excluded(),
                            .retry_tokens = options.retry_budget->tokens(),
                            .may_retry = options.retry_budget->may_retry()};
  if (routes != nullptr) {
    if (routes->clusters.size() > 1)
      report.name += " cluster " + cluster::shown_cluster(routes->clusters[routes->main]);
    report.routes = cluster::text_of_routes(*routes);
  }
  const NamingState& list = naming->state();
  report.list_age = list.age(loop.now());
  report.naming = {.version = list.version,
                   .constant = list.constant,
                   .error = list.error,
                   .lists_refused = list.lists_refused,
                   .endpoints_dropped = list.endpoints_dropped,
                   .drop_reason = list.drop_reason,
                   .service_config_error = list.service_config_error};
  for (std::size_t i = 0; i < backends.size(); ++i) {
    report.calls_in_flight += backends[i]->in_flight;
    if (i >= from && i - from < limit) report.rows.push_back(state_of(static_cast<const Node&>(*backends[i])));
  }
  return report;
}

// ---- Connections ----

void ClusterAttempt::State::connect(Node& node) { scope.spawn(connect_within_limit(node.shared_from_this())); }

void ClusterAttempt::State::on_connect_failed(Node& node, std::string why) {
  close_later(node);  // A pool pauses before its next attempt. The pause of this node takes its place.
  fail_node(node, std::move(why));
}

void ClusterAttempt::State::fail_node(Node& node, std::string why) {
  node.error = std::move(why);
  set_reach(node, Reach::failed);
  if (balancer.listed(node)) node.pause.start(loop, loop.after(pause_after(++node.failures)));
}

Task<void> ClusterAttempt::State::connect_within_limit(std::shared_ptr<Node> node) {
  set_reach(*node, Reach::connecting);
  try {
    Permit permit = co_await connecting.acquire();
    if (!balancer.listed(*node)) co_return;
    if (node->pool == nullptr) node->pool = make_pool(*node);
    auto connected = co_await PoolAccess::acquire(*node->pool);
    permit.release();
    if (metrics) metrics->note_connect(connected.has_value());
    if (connected && load.lacks_reader(*node)) {
      close_later(*node);
      co_return connect(*node);
    }
    if (!connected) {
      on_connect_failed(*node, std::move(connected.error().text));
    } else {
      node->failures = 0;
      node->error.clear();
      set_reach(*node, Reach::ready);
      load.begin_questions(*node);
    }
  } catch (const std::bad_alloc&) {
    // Otherwise the node would wait for ever. It keeps its pool, if it has one.
    if (node->reach == Reach::connecting) fail_node(*node, "no memory");
  }
  changed.notify_all();
}

std::shared_ptr<ClientPool> ClusterAttempt::State::make_pool(Node& node) {
  PoolOptions with = options.pool;
  with.connect_attempts_max = 1;
  // Endpoints are not tried again at the same time.
  if (options.seed != 0 && with.backoff_seed == 0)
    with.backoff_seed = cluster::xxh64(node.endpoint.address, options.seed) | 1;
  node.reads_reports = load.comes_with_results();
  if (node.reads_reports) with.client.interceptors.push_back(ClusterLoad::make_reader(node));
  return ClientPool::create(loop, node.endpoint.address, std::move(with));
}

void ClusterAttempt::State::on_lost(Node& node) {
  if (metrics) metrics->note_disconnect();
  set_reach(node, Reach::idle);
}

Duration ClusterAttempt::State::random_below(Duration bound) noexcept {
  return Duration(static_cast<Duration::rep>(random.below(static_cast<std::uint64_t>(bound.count()) + 1)));
}

Duration ClusterAttempt::State::pause_after(unsigned failed) noexcept {
  const std::int64_t doublings = std::int64_t{1} << std::min(failed - 1, 20U);
  const PoolOptions& pool = options.pool;
  const Duration whole =
      pool.backoff_min < pool.backoff_max / doublings ? pool.backoff_min * doublings : pool.backoff_max;
  return whole / 2 + random_below(whole / 2);
}

void ClusterAttempt::State::close_later(Node& node) {
  if (node.pool == nullptr) return;
  closing.push_back(std::move(node.pool));
  if (!closer.running()) closer.start(loop, loop.now());
}

void ClusterAttempt::State::close_unused() {
  std::erase_if(closing, [](const auto& pool) { return pool->calls_in_flight() == 0; });
  if (!closing.empty()) closer.start(loop, loop.after(close_interval));
}

bool ClusterAttempt::State::unused() const noexcept {
  const auto idle = [](const std::shared_ptr<ClientPool>& pool) {
    return pool == nullptr || pool->calls_in_flight() == 0;
  };
  return calls_in_flight == 0 && !balancer.has_left() && std::ranges::all_of(closing, idle) &&
         std::ranges::all_of(balancer.backends(),
                             [&](const auto& backend) { return idle(static_cast<const Node&>(*backend).pool); });
}

// ---- Calls ----

std::uint64_t ClusterAttempt::State::key_of(const CallOptions& call, const std::vector<NamingPolicy::Key>* keys) {
  const Balancing kind = balancer.options().kind;
  if (kind != Balancing::ring_hash && kind != Balancing::maglev) return 0;
  const auto hash_of = [&call](std::string_view metadata) -> std::optional<std::uint64_t> {
    std::optional<std::string> value;  // Several values count as one, as in gRFC A42.
    for (const auto& [entry, one] : call.metadata) {
      if (entry == metadata) value = value ? *value + "," + one : one;
    }
    return value ? std::optional(cluster::xxh64(*value)) : std::nullopt;
  };
  if (policy == nullptr || !policy->balancing) {
    const std::optional<std::uint64_t> hash = hash_of(options.key_metadata);
    return hash ? *hash : random.next();
  }
  std::optional<std::uint64_t> hash;
  for (const NamingPolicy::Key& key : keys != nullptr ? *keys : policy->keys) {
    const std::optional<std::uint64_t> one = hash_of(key.metadata);
    if (!one) continue;
    hash = hash ? std::rotl(*hash, 1) ^ *one : *one;  // As in gRFC A42.
    if (key.terminal) break;
  }
  return hash ? *hash : random.next();
}

const char* ClusterAttempt::State::why_dropped() noexcept {
  if (policy == nullptr || policy->dropped_part <= 0 || !random.chance(policy->dropped_part)) return nullptr;
  return "the source of the name demands that a part of the calls is dropped";
}

const char* ClusterAttempt::State::why_full() const noexcept {
  if (policy == nullptr || !policy->calls_max || calls_in_flight < *policy->calls_max) return nullptr;
  return "as many calls are in flight as the source of the name permits";
}

std::optional<Error> ClusterAttempt::State::why_none(const Tried* tried) const {
  const NamingState& list = naming->state();
  if (list.version == 0) {
    if (!list.error) return std::nullopt;
    return Error::of_connection(ErrorCode::unavailable, "no list of endpoints: " + list.error->text);
  }
  if (balancer.backends().empty()) return std::nullopt;  // The first list is being put into effect.
  const Node* failed = nullptr;
  bool full = false;
  for (const auto& backend : balancer.backends()) {
    const bool was_tried =
        tried != nullptr && std::ranges::find(tried->backends, backend.get()) != tried->backends.end();
    if (!was_tried && (backend->reach == Reach::idle || backend->reach == Reach::connecting)) return std::nullopt;
    full = full || (!was_tried && backend->reach == Reach::ready && backend->full());
    if (backend->reach == Reach::failed) failed = static_cast<const Node*>(backend.get());
  }
  if (full) {
    return Error::of_call(ErrorCode::overloaded, "each endpoint of " + name +
                                                     " that can be reached has as many calls in flight as its limit "
                                                     "(BalancingOptions::endpoint_limit) permits: try again later");
  }
  if (tried != nullptr && tried->error) return tried->error;
  return Error::of_connection(
      ErrorCode::unavailable,
      "none of the " + count_text(balancer.backends().size(), "endpoint") + " of " + name +
          " can be reached; the last reason: " + (failed == nullptr ? "their connections were lost" : failed->error));
}

}  // namespace hawser::detail
