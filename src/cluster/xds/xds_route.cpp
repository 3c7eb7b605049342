#include "cluster/xds/xds_route.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/try.h"
#include "cluster/xds/xds_fields.h"
#include "cluster/xds/xds_match.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::ProtoField;

constexpr std::string_view connection_manager_type =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
constexpr std::size_t routes_max = 10'000;          // Limit of a virtual host.
constexpr std::size_t targets_max = 20'000;         // Limit of the clusters of all routes, each counted once a route.
constexpr std::uint64_t weights_max = 0xffff'ffff;  // Limit of their sum in a route, as in gRPC.
constexpr std::string_view too_many_clusters = "the routes lead to more than 64 clusters";
static_assert(NamingRoutes::clusters_max == 64);
constexpr std::string_view router_type = "envoy.extensions.filters.http.router.v3.Router";

// How well a domain of a virtual host matches: 0 not at all; else the higher number counts. Exact names precede those
// that begin with a star, these precede those that end with one, and the longer one precedes.
std::size_t match_of(std::string_view domain, std::string_view host) {
  constexpr std::size_t exact = std::size_t{3} << 32;
  constexpr std::size_t any_prefix = std::size_t{2} << 32;
  constexpr std::size_t any_suffix = std::size_t{1} << 32;
  if (domain == "*") return 1;
  if (domain == host) return exact;
  if (domain.empty() || domain.size() > host.size()) return 0;
  if (domain.front() == '*' && host.ends_with(domain.substr(1))) return any_prefix + domain.size();
  if (domain.back() == '*' && host.starts_with(domain.substr(0, domain.size() - 1))) {
    return any_suffix + domain.size();
  }
  return 0;
}

// VirtualHost: the best match of its domains.
Result<std::size_t> best_match(std::string_view virtual_host, const std::string& host) {
  std::size_t best = 0;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number == 2) best = std::max(best, match_of(lower_case(field.bytes), host));
    return {};
  };
  TRY(read_fields(virtual_host, visit));
  return best;
}

// WeightedCluster: those that have a weight.
Result<std::vector<XdsRoute::Target>> read_weighted_clusters(std::string_view message) {
  std::vector<XdsRoute::Target> targets;
  std::uint64_t sum = 0;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != 1) return {};
    TRY(const std::string_view name, read_bytes(field.bytes, 1));
    TRY(const std::string_view wrapped, read_bytes(field.bytes, 2));
    TRY(const std::uint64_t weight, read_wrapped_number(wrapped));
    if (weight == 0) return {};
    if (name.empty()) return refuse_resource("a weighted cluster has no name, which is not supported");
    sum += std::min<std::uint64_t>(weight, weights_max + 1);
    if (sum > weights_max) return refuse_resource("the sum of the weights of clusters is above 4294967295");
    if (std::ranges::find(targets, name, &XdsRoute::Target::cluster) != targets.end()) {
      return refuse_resource("weighted_clusters has " + quoted_name(name) + " twice");
    }
    if (targets.size() == NamingRoutes::clusters_max) return refuse_resource(std::string(too_many_clusters));
    targets.push_back({.cluster = std::string(name), .weight = static_cast<std::uint32_t>(weight)});
    return {};
  };
  TRY(read_fields(message, visit));
  return targets;
}

// RouteAction: its clusters.
Result<std::vector<XdsRoute::Target>> targets_of(std::string_view action) {
  std::vector<XdsRoute::Target> targets;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1:
        targets.clear();
        if (!field.bytes.empty()) targets.push_back({.cluster = std::string(field.bytes)});
        break;
      case 2: return refuse_resource("cluster_header is not supported");
      case 3: return assign(targets, read_weighted_clusters(field.bytes));
      case 37:
      case 39: return refuse_resource("cluster_specifier_plugin is not supported");
      default: break;
    }
    return {};
  };
  TRY(read_fields(action, visit));
  if (targets.empty()) return refuse_resource("it has no cluster");
  return targets;
}

struct ReadRoute {
  XdsMatch match;
  XdsRoute route;
};

Result<ReadRoute> read_route(std::string_view message, const std::optional<XdsRetry>& retry) {
  ReadRoute read;
  TRY(const std::string_view match, read_bytes(message, 1));
  TRY(read.match, read_route_match(match));
  if (read.match.kind == XdsMatch::Kind::nothing) return read;
  TRY(const std::string_view action, read_bytes(message, 2));
  if (action.empty()) return refuse_resource("it does not forward calls, which is not supported");
  TRY(read.route.demands, read_route_demands(action, retry));
  TRY(read.route.targets, targets_of(action));
  read.route.match = read.match.match;
  return read;
}

// A route that matches by what is not supported may be left out if its calls get the same from the routes behind it.
Result<void> drop_unsupported(std::vector<ReadRoute>& routes) {
  const auto alike = [&routes](const ReadRoute& one) {
    const XdsRoute& last = routes.back().route;
    return one.route.targets == last.targets && one.route.demands == last.demands;
  };
  bool same = routes.back().match.matches_all();  // All routes behind `i` lead to the same.
  for (std::size_t i = routes.size(); i-- > 0;) {
    same = same && alike(routes[i]);
    if (routes[i].match.kind == XdsMatch::Kind::unsupported && !same) {
      return refuse_resource("route " + std::to_string(i) +
                             " matches by more than a path, a prefix, headers and a fraction, such as by a regular "
                             "expression, which is not supported");
    }
  }
  std::erase_if(routes, [](const ReadRoute& one) { return one.match.kind == XdsMatch::Kind::unsupported; });
  return {};
}

Result<XdsRoutes> collect_routes(std::vector<ReadRoute>& read) {
  XdsRoutes all;
  std::set<std::string, std::less<>> known;
  for (ReadRoute& one : read) {
    for (const XdsRoute::Target& target : one.route.targets) {
      if (!known.insert(target.cluster).second) continue;
      if (known.size() > NamingRoutes::clusters_max) return refuse_resource(std::string(too_many_clusters));
      all.clusters.push_back(target.cluster);
    }
    all.routes.push_back(std::move(one.route));
  }
  return all;
}

Result<std::optional<XdsRetry>> read_default_retry(std::string_view virtual_host) {
  std::optional<XdsRetry> retry;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != 16) return {};
    return assign(retry, read_retry_policy(field.bytes));
  };
  TRY(read_fields(virtual_host, visit));
  return retry;
}

// The routes up to the first one that matches all calls.
Result<XdsRoutes> read_virtual_host(std::string_view message) {
  TRY(const std::optional<XdsRetry> retry, read_default_retry(message));
  std::size_t count = 0;
  std::size_t targets = 0;
  std::vector<ReadRoute> routes;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != 3 || (!routes.empty() && routes.back().match.matches_all())) return {};
    const std::string which = "route " + std::to_string(count) + ": ";
    if (count++ == routes_max) return refuse_resource(which + "there are more than " + std::to_string(routes_max));
    Result<ReadRoute> read = read_route(field.bytes, retry);
    if (!read) return refuse_resource(which + read.error().text);
    targets += read->route.targets.size();
    if (targets > targets_max) {
      return refuse_resource(which + "the routes have more than " + std::to_string(targets_max) + " clusters");
    }
    if (read->match.kind != XdsMatch::Kind::nothing) routes.push_back(std::move(*read));
    return {};
  };
  TRY(read_fields(message, visit));
  if (routes.empty()) return refuse_resource("the virtual host has no route");
  TRY(drop_unsupported(routes));
  return collect_routes(routes);
}

// Rds: the name of the RouteConfiguration.
Result<std::string> read_route_name(std::string_view message) {
  TRY(const std::string_view source, read_bytes(message, 1));
  TRY(const bool same, is_same_stream(source));
  TRY(const std::string_view name, read_bytes(message, 2));
  if (!same) return refuse_resource("rds.config_source is not ads or self, which is not supported");
  if (name.empty()) return refuse_resource("rds.route_config_name is empty");
  return std::string(name);
}

// HttpFilter. The router is the only one that is supported.
Result<void> check_filter(std::string_view message) {
  TRY(const std::string_view name, read_bytes(message, 1));
  TRY(const std::string_view any, read_bytes(message, 4));
  TRY(const XdsAny config, read_any(any));
  TRY(const std::uint64_t optional, read_number(message, 6));
  if (optional != 0 || config.type == router_type) return {};
  return refuse_resource("the HTTP filter " + quoted_name(name) + " is not supported, and not optional");
}

Result<XdsListener> read_connection_manager(std::string_view message, std::string_view host) {
  XdsListener listener;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 3: return assign(listener.route_name, read_route_name(field.bytes));
      case 4: return assign(listener.routes, read_route_configuration(field.bytes, host));
      case 5: return check_filter(field.bytes);
      case 31: return refuse_resource("scoped_routes is not supported");
      default: break;
    }
    return {};
  };
  TRY(read_fields(message, visit));
  if (listener.route_name.empty() == !listener.routes) return refuse_resource("it needs rds or route_config");
  return listener;
}

}  // namespace

Result<bool> is_same_stream(std::string_view config_source) {
  bool same = false;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number == 3 || field.number == 5) same = true;  // ads, self
    return {};
  };
  TRY(read_fields(config_source, visit));
  return same;
}

Result<XdsRoutes> read_route_configuration(std::string_view message, std::string_view host) {
  const std::string wanted = lower_case(host);
  std::size_t best = 0;
  std::string_view chosen;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != 2) return {};
    TRY(const std::size_t match, best_match(field.bytes, wanted));
    if (match > best) chosen = field.bytes;
    best = std::max(best, match);
    return {};
  };
  TRY(read_fields(message, visit));
  if (best == 0) return refuse_resource("no virtual host has a domain that matches " + quoted_name(host));
  return read_virtual_host(chosen);
}

NamingRoutes naming_routes_of(const XdsRoutes& routes, std::string_view main, bool demands) {
  NamingRoutes to{.clusters = routes.clusters};
  std::unordered_map<std::string_view, std::size_t> indexes;
  for (std::size_t i = 0; i < to.clusters.size(); ++i) indexes.emplace(to.clusters[i], i);
  to.main = indexes.at(main);
  to.routes.reserve(routes.routes.size());
  for (const XdsRoute& one : routes.routes) {
    NamingRoutes::Route& route = to.routes.emplace_back(NamingRoutes::Route{.match = one.match});
    for (const XdsRoute::Target& target : one.targets) {
      route.targets.push_back({.cluster = indexes.at(target.cluster), .weight = target.weight});
    }
    if (!demands) continue;
    route.config = config_of(one.demands);
    route.keys = one.demands.keys;
  }
  return to;
}

Result<XdsListener> read_listener(std::string_view message, std::string_view host) {
  TRY(const std::string_view api_listener, read_bytes(message, 19));
  TRY(const std::string_view any, read_bytes(api_listener, 1));
  TRY(const XdsAny manager, read_any(any));
  if (manager.type != connection_manager_type) {
    return refuse_resource("the listener has no api_listener that is an HttpConnectionManager");
  }
  return read_connection_manager(manager.value, host);
}

}  // namespace hawser::cluster
