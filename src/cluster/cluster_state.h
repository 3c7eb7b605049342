#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/random.h"
#include "cluster/balancer.h"
#include "cluster/cluster_load.h"
#include "cluster/cluster_metrics.h"
#include "cluster/route_index.h"
#include "exec/condition.h"
#include "hawser/cluster_client.h"
#include "hawser/detail/loop_access.h"
#include "hawser/naming_routes.h"
#include "hawser/scope.h"
#include "hawser/sync.h"
#include "hawser/timer.h"
#include "rpc/client/cluster_monitor_state.h"
#include "rpc/client/hedge_times.h"

namespace hawser::detail {

class RoutedClusters;

// An endpoint and its connections.
struct ClusterAttempt::Node final : cluster::Backend, std::enable_shared_from_this<Node> {
  explicit Node(State& of) noexcept : state(of) {}
  void end_pause() noexcept;

  State& state;  // Outlives the calls that use this.
  std::shared_ptr<ClientPool> pool;
  unsigned failures = 0;       // Failed attempts to connect in a row.
  bool called = false;         // Since its server was asked for its load.
  bool asked = false;          // A task asks its server for its load.
  bool reads_reports = false;  // Its pool reads reports beside results.
  std::string error;           // The reason of the last one.
  MemberTimer<&Node::end_pause> pause{*this};
};

// A ClusterClient and what its calls share.
struct ClusterAttempt::State final : LoopUser, rpc::MonitoredCluster, std::enable_shared_from_this<State> {
  using NodeOf = Node;
  State(Loop& on, std::string with_name, ClusterOptions with);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Result<void> start();
  // Ends all connections, if the client has not ended. All calls end with `why`.
  void end(const char* why);
  void on_loop_end() noexcept override;
  void on_naming();
  void on_confirmed();
  // The list gets no further changes.
  void forget_name() noexcept;
  std::string shown_name() const;

  // Opens the first connection to an idle endpoint.
  void connect(Node& node);
  // The last connection of an endpoint was lost.
  void on_lost(Node& node);
  void set_reach(Node& node, cluster::Reach reach);
  EndpointState state_of(const Node& node) const;
  // The status of gRPC that metrics show for the result of a call or an attempt.
  std::int32_t status_of(const Error* error) const;
  rpc::ClusterReport report(std::size_t from, std::size_t limit) const override;

  // `keys` may be null.
  std::uint64_t key_of(const CallOptions& call, const std::vector<NamingPolicy::Key>* keys);
  // Why the policy of the name forbids a call; null if it permits it. The first is by chance, so that it is asked once
  // for each attempt.
  const char* why_dropped() noexcept;
  const char* why_full() const noexcept;
  // Why no endpoint outside of `tried` can be waited for; empty if one can.
  std::optional<Error> why_none(const Tried* tried) const;
  // Closes the connections of a node when their calls and streams have ended.
  void close_later(Node& node);
  void close_unused();
  // True if no call and no stream uses a connection.
  bool unused() const noexcept;
  void balance();
  void finish_update() noexcept;
  void take_policy() noexcept;
  // Some endpoints that have left the list get no further calls.
  void forget_left();
  // By chance from 0 to `bound`.
  Duration random_below(Duration bound) noexcept;

  Loop& loop;
  const std::string name;
  std::string target;  // The name in metrics. Clusters of one name have the same.
  const ClusterOptions options;
  const char* ended = nullptr;  // The reason, once the client has ended.
  std::stop_source ending;      // Stopped then.
  bool uses_loop = false;       // The loop knows this object.
  std::uint64_t monitored = 0;  // Its number in the monitor; 0: none.
  Random random;
  cluster::Balancer balancer;
  rpc::HedgeTimes hedge_times;
  std::optional<cluster::ClusterMetrics> metrics;  // In the monitor, which `options` has.
  exec::Condition changed;  // Notified when an endpoint, the list or the client has changed its state.
  Semaphore connecting;
  std::vector<std::shared_ptr<ClientPool>> closing;  // They get no further calls.
  MemberTimer<&State::close_unused> closer{*this};
  MemberTimer<&State::balance> builder{*this};
  MemberTimer<&State::take_policy> policy_taker{*this};
  ClusterLoad load{*this};
  std::unique_ptr<Naming> naming;
  std::uint64_t list_version = 0;                       // The balancer has this list, or it is being put into effect.
  bool updates_at_once = false;                         // The next one is put into effect in one step.
  std::shared_ptr<const ServiceConfig> service_config;  // May be null.
  std::shared_ptr<const NamingPolicy> policy;           // The name has demanded it. May be null.
  std::shared_ptr<const NamingRoutes> routes;           // Null: none. The name itself is their main cluster.
  std::optional<cluster::RouteIndex> route_index;       // Finds one of these. Empty without routes.
  std::unique_ptr<RoutedClusters> clusters;             // The others. Null without routes.
  std::uint32_t calls_in_flight = 0;                    // At all endpoints.
  Scope scope;

 private:
  Task<void> connect_within_limit(std::shared_ptr<Node> node);
  std::shared_ptr<ClientPool> make_pool(Node& node);
  void on_connect_failed(Node& node, std::string why);
  // The node is tried again after a pause.
  void fail_node(Node& node, std::string why);
  Duration pause_after(unsigned failures) noexcept;
  void apply_routes(const std::shared_ptr<const NamingRoutes>& named);
  void apply_policy(const std::shared_ptr<const NamingPolicy>& named);
  void show_endpoints();
};

// Endpoints that a call avoids.
struct ClusterAttempt::Tried {
  void add(std::shared_ptr<Node> node) {
    backends.push_back(node.get());
    nodes.push_back(std::move(node));
  }
  std::vector<std::shared_ptr<Node>> nodes;
  std::vector<const cluster::Backend*> backends;  // The same ones.
  std::shared_ptr<Node> full;                     // The first one whose connections accepted no further call.
  unsigned repeats = 0;
  std::optional<Error> error;  // The last endpoint at which the call was made returned it.
};

}  // namespace hawser::detail
