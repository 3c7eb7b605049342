#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/balancing.h"
#include "hawser/client_pool.h"
#include "hawser/cluster_monitor.h"
#include "hawser/hedging.h"
#include "hawser/naming.h"
#include "hawser/retry.h"
#include "hawser/service_config.h"

// The options of a ClusterClient (hawser/cluster_client.h). Component hawser::cluster.
namespace hawser {

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
  // Its fields take the place of `retry`, `hedging` and `balancing.kind`, and of a null `retry_budget`. Empty: the name
  // may have a service config, such as in TXT records of DNS. Its methodConfig counts then.
  std::optional<ServiceConfig> service_config = {};
  // For Balancing::ring_hash and maglev: the name of the metadata of a call whose value is its key. A call without it
  // goes to any endpoint.
  std::string key_metadata = {};
  std::vector<NamingScheme> naming = default_naming();
  // Shows the client on the page /channels and in metrics. Empty: nothing is counted.
  std::optional<ClusterMonitor> monitor = {};
  std::size_t connecting_max = 16;  // Endpoints to which connections are opened at the same time. At least 1.
  // Seed of choices and back-off. 0: each client uses a different one. Clients with one seed, also those of other
  // processes, choose alike and come back from an outage at the same time: for tests.
  std::uint64_t seed = 0;
};

}  // namespace hawser
