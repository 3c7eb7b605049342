#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/xds/xds_methods.h"
#include "hawser/error.h"
#include "hawser/naming_routes.h"

// The resources of a control plane that lead from a name to its clusters. A resource that is malformed or demands what
// is not supported fails with the text for the control plane.
namespace hawser::cluster {

// A route: which calls, where and how.
struct XdsRoute {
  NamingRoutes::Match match = {};
  struct Target {
    std::string cluster;
    std::uint32_t weight = 1;
    friend bool operator==(const Target&, const Target&) = default;
  };
  std::vector<Target> targets = {};  // At least one, each with a weight.
  XdsDemands demands = {};
  friend bool operator==(const XdsRoute&, const XdsRoute&) = default;
};

// The part of a RouteConfiguration that concerns one host: the routes up to the first one that matches all calls.
struct XdsRoutes {
  std::vector<XdsRoute> routes = {};
  std::vector<std::string> clusters = {};  // Each once, at most NamingRoutes::clusters_max, in the order of the routes.
  bool has(std::string_view cluster) const { return std::ranges::find(clusters, cluster) != clusters.end(); }
  friend bool operator==(const XdsRoutes&, const XdsRoutes&) = default;
};
Result<XdsRoutes> read_route_configuration(std::string_view message, std::string_view host);

// The same for clients, without NamingRoutes::open. `demands`: those of the routes are a part of it.
NamingRoutes naming_routes_of(const XdsRoutes& routes, std::string_view main, bool demands);

// Listener. It has one of the two.
struct XdsListener {
  std::string route_name = {};  // The name of a RouteConfiguration.
  std::optional<XdsRoutes> routes = {};
};
Result<XdsListener> read_listener(std::string_view message, std::string_view host);

// True if a field of type ConfigSource demands the stream on which it was sent.
Result<bool> is_same_stream(std::string_view config_source);

}  // namespace hawser::cluster
