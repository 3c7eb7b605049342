#include "cluster/xds/xds_route.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/try.h"
#include "cluster/xds/xds_fields.h"
#include "cluster/xds/xds_methods.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::ProtoField;

constexpr std::string_view connection_manager_type =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
constexpr std::size_t routes_max = 10'000;  // Limit of a virtual host.
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

// WeightedCluster: the only one that has calls.
Result<std::string> only_cluster(std::string_view message) {
  std::string only;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != 1) return {};
    TRY(const std::string_view name, read_bytes(field.bytes, 1));
    TRY(const std::string_view wrapped, read_bytes(field.bytes, 2));
    TRY(const std::uint64_t weight, read_wrapped_number(wrapped));
    if (weight == 0) return {};
    if (!only.empty() && only != name) {
      return refuse_resource("weighted_clusters has several clusters with a weight, which is not supported");
    }
    only = name;
    return {};
  };
  TRY(read_fields(message, visit));
  return only;
}

// RouteAction: its cluster.
Result<std::string> cluster_of(std::string_view action) {
  std::string cluster;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1: cluster = field.bytes; break;
      case 2: return refuse_resource("cluster_header is not supported");
      case 3: return assign(cluster, only_cluster(field.bytes));
      case 37:
      case 39: return refuse_resource("cluster_specifier_plugin is not supported");
      default: break;
    }
    return {};
  };
  TRY(read_fields(action, visit));
  if (cluster.empty()) return refuse_resource("it has no cluster");
  return cluster;
}

struct ReadRoute {
  std::string cluster;
  XdsMethodRoute methods;
};

Result<ReadRoute> read_route(std::string_view message, const std::optional<XdsRetry>& retry) {
  TRY(const std::string_view match, read_bytes(message, 1));
  TRY(const std::string_view action, read_bytes(message, 2));
  if (action.empty()) return refuse_resource("it does not forward calls, which is not supported");
  ReadRoute read;
  TRY(read.methods.match, read_route_match(match));
  TRY(read.methods.demands, read_route_demands(action, retry));
  TRY(read.cluster, cluster_of(action));
  return read;
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

// The routes up to the first one that matches every method. All of them must lead to one cluster, because a name has
// one list of endpoints for all methods.
Result<XdsRoute> read_virtual_host(std::string_view message) {
  TRY(const std::optional<XdsRetry> retry, read_default_retry(message));
  bool done = false;
  XdsRoute route;
  std::vector<XdsMethodRoute> routes;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != 3 || done) return {};
    const std::string which = "route " + std::to_string(routes.size()) + ": ";
    if (routes.size() == routes_max)
      return refuse_resource(which + "there are more than " + std::to_string(routes_max));
    Result<ReadRoute> read = read_route(field.bytes, retry);
    if (!read) return refuse_resource(which + read.error().text);
    if (!route.cluster.empty() && route.cluster != read->cluster) {
      return refuse_resource(which + "it leads to the cluster " + quoted_name(read->cluster) +
                             ", and an earlier one to " + quoted_name(route.cluster) +
                             ": several clusters for one name are not supported");
    }
    done = read->methods.match.kind == XdsMatch::Kind::all;
    route.cluster = std::move(read->cluster);
    routes.push_back(std::move(read->methods));
    return {};
  };
  TRY(read_fields(message, visit));
  if (!done) return refuse_resource("no route matches every method, by the prefix '' or '/' without other conditions");
  TRY(route.service_config, service_config_of(routes));
  route.keys = std::move(routes.back().demands.keys);
  return route;
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
      case 4: return assign(listener.route, read_route_configuration(field.bytes, host));
      case 5: return check_filter(field.bytes);
      case 31: return refuse_resource("scoped_routes is not supported");
      default: break;
    }
    return {};
  };
  TRY(read_fields(message, visit));
  if (listener.route_name.empty() == !listener.route) return refuse_resource("it needs rds or route_config");
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

Result<XdsRoute> read_route_configuration(std::string_view message, std::string_view host) {
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
