#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/metrics.h"
#include "hawser/naming.h"
#include "hawser/time.h"

// Shows clients of names on the page /channels and in metrics. docs/clusters.md describes both.
//
//   hawser::ClusterMonitor monitor;
//   cluster_options.monitor = monitor;                         // Of any number of clients, on any loops.
//   hawser::enable_pages(server, {.clusters = monitor});       // GET /channels, and more rows in GET /metrics.
namespace hawser {

// One endpoint, as a ClusterClient sees it.
struct EndpointState {
  Endpoint endpoint;
  std::string_view reach;     // "idle", "connecting", "ready" or "failed".
  std::string_view standing;  // Why it gets calls, or why it gets none. A sentence for people.
  std::size_t connections = 0;
  std::size_t calls_in_flight = 0;
  std::optional<Duration> latency = {};              // By which p2c chooses; penalties for failures are part of it.
  Duration excluded_for = {};                        // Remaining time of an exclusion as an outlier.
  Duration breaker_open_for = {};                    // Remaining time of an exclusion by failures in a row.
  std::optional<unsigned> calls_in_flight_max = {};  // By BalancingOptions::endpoint_limit.
  std::optional<double> weight_by_load = {};         // In place of that of the list: BalancingOptions::load_weights.
  std::string error = {};                            // Why the last attempt to connect failed, while it has this state.
};

// Shows the clients that have it in ClusterOptions::monitor, as long as they exist. A value: copies are one monitor.
// Any thread.
class ClusterMonitor {
 public:
  // Bounds of metrics(): series of each metric, as for MetricRegistry, and methods of each client. Further methods
  // count as the method "other". A series of durations takes up to 40 KiB.
  static constexpr std::size_t series_max = 500;
  static constexpr std::size_t methods_max = 100;

  ClusterMonitor();

  // Attempts, connections and exclusions by the names of gRPC. It lives as long as a copy of this object, or a client.
  const MetricRegistry& metrics() const noexcept;

 private:
  friend struct ClusterMonitorAccess;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hawser
