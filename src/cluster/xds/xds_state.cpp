#include "cluster/xds/xds_state.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "cluster/xds/xds_fields.h"
#include "cluster/xds/xds_policy.h"

namespace hawser::cluster {
namespace {

constexpr std::array<std::string_view, xds_kinds> kind_names = {"listener", "route configuration", "cluster",
                                                                "load assignment"};
// A resource may be in an envelope, which has its name.
constexpr std::string_view envelope_type = "envoy.service.discovery.v3.Resource";

struct NamedResource {
  std::string_view type;
  std::string_view name;
  std::string_view message;
};

Result<NamedResource> open_resource(std::string_view encoded) {
  TRY(XdsAny any, read_any(encoded));
  if (any.type == envelope_type) {
    TRY(const std::string_view inner, read_bytes(any.value, 2));
    TRY(any, read_any(inner));
  }
  TRY(const std::string_view name, read_bytes(any.value, 1));  // It is the same field in each kind.
  return NamedResource{.type = any.type, .name = name, .message = any.value};
}

std::string resource_text(XdsKind kind, std::string_view name) {
  return std::string(kind_names[static_cast<std::size_t>(kind)]) + " " + quoted_name(name);
}

}  // namespace

XdsState::XdsState(std::string listener, std::string host, std::string node, Duration absent_timeout, bool policies)
    : host_(std::move(host)), absent_timeout_(absent_timeout), policies_(policies), node_(std::move(node)) {
  of(XdsKind::listener).name = std::move(listener);
}

std::vector<std::string> XdsState::begin(Time now) {
  node_sent_ = false;
  std::vector<std::string> requests;
  for (std::size_t i = 0; i < xds_kinds; ++i) {
    Subscription& one = subscriptions_[i];
    one.version.clear();
    one.nonce.clear();
    one.absent_at = Time::max();
    one.requested = one.fresh = one.stale_request = false;
    if (!one.name.empty()) requests.push_back(request(static_cast<XdsKind>(i), now));
  }
  return requests;
}

std::string XdsState::request(XdsKind kind, Time now, std::string_view refusal) {
  Subscription& one = of(kind);
  if ((!one.requested || one.stale_request) && !one.name.empty()) one.absent_at = now + absent_timeout_;
  one.requested = true;
  one.stale_request = false;
  const bool first = !std::exchange(node_sent_, true);
  return discovery_request({.kind = kind,
                            .version = one.version,
                            .node = first ? std::string_view(node_) : std::string_view(),
                            .name = one.name,
                            .nonce = one.nonce,
                            .refusal = refusal});
}

Result<void> XdsState::want(XdsKind kind, std::string_view name) {
  if (name.size() > name_bytes_max) {
    return refuse_resource("it leads to a name of " + std::to_string(name.size()) + " bytes, more than " +
                           std::to_string(name_bytes_max));
  }
  Subscription& one = of(kind);
  if (one.name == name) return {};
  one.name = name;
  one.problem.clear();
  one.absent_at = Time::max();
  one.fresh = false;
  one.stale_request = one.requested || !one.name.empty();
  return {};
}

Result<std::optional<std::string_view>> XdsState::find(XdsKind kind, const XdsResponse& response) {
  std::optional<std::string_view> found;
  for (const std::string_view encoded : response.resources) {
    TRY(const NamedResource resource, open_resource(encoded));
    if (resource.type != xds_types[static_cast<std::size_t>(kind)]) {
      return refuse_resource("the answer has a resource of the type " + quoted_name(resource.type));
    }
    if (resource.name != of(kind).name) continue;
    if (found) return refuse_resource("the answer has it twice");
    found = resource.message;
  }
  return found;
}

Result<void> XdsState::take(XdsKind kind, std::string_view resource) {
  std::optional<XdsRoute> route;
  switch (kind) {
    case XdsKind::listener: {
      TRY(XdsListener listener, read_listener(resource, host_));
      TRY(want(XdsKind::route, listener.route_name));
      route = std::move(listener.route);
      break;
    }
    case XdsKind::route: {
      TRY(route, read_route_configuration(resource, host_));
      break;
    }
    case XdsKind::cluster: return take_cluster(resource);
    case XdsKind::endpoints: return take_endpoints(resource);
  }
  if (!route) return {};
  TRY(want(XdsKind::cluster, route->cluster));
  arrived_.service_config = std::move(route->service_config);
  arrived_.policy.keys = std::move(route->keys);
  return {};
}

Result<void> XdsState::take_cluster(std::string_view resource) {
  TRY(const XdsCluster cluster, read_cluster(resource));
  NamingPolicy policy;
  if (policies_) {
    TRY(policy, read_cluster_policy(resource));
  }
  TRY(want(XdsKind::endpoints, cluster.endpoints_name));
  policy.keys = std::move(arrived_.policy.keys);
  policy.dropped_part = arrived_.policy.dropped_part;
  arrived_.policy = std::move(policy);
  return {};
}

Result<void> XdsState::take_endpoints(std::string_view resource) {
  TRY(std::vector<Endpoint> endpoints, read_load_assignment(resource));
  TRY(arrived_.policy.dropped_part, read_dropped_part(resource));
  demands_.policy.dropped_part = arrived_.policy.dropped_part;  // It holds for these endpoints, whatever leads to them.
  endpoints_ = std::move(endpoints);
  return {};
}

bool XdsState::whole() const noexcept {
  return known() && std::ranges::all_of(subscriptions_, [](const Subscription& one) {
           return one.name.empty() || (one.fresh && one.problem.empty());
         });
}

Result<XdsState::Step> XdsState::on_response(std::string_view message, Time now) {
  TRY(const XdsResponse response, read_discovery_response(message));
  Step step;
  const auto type = std::ranges::find(xds_types, response.type);
  if (type == xds_types.end()) return step;
  const auto kind = static_cast<XdsKind>(type - xds_types.begin());
  Subscription& one = of(kind);
  one.nonce = response.nonce;
  if (one.name.empty()) {
    // Nobody asked. The answer is accepted, so that the control plane waits for nothing.
    one.version = response.version;
    step.requests.push_back(request(kind, now));
    return step;
  }
  Result<std::optional<std::string_view>> found = find(kind, response);
  Result<void> taken;
  if (!found) taken = fail(std::move(found.error()));
  if (found && *found) taken = take(kind, **found);
  if (!taken) {
    one.fresh = false;
    one.absent_at = Time::max();
    one.problem = resource_text(kind, one.name) + " was refused: " + taken.error().text;
    step.requests.push_back(request(kind, now, one.problem));
    step.refused = true;
    return step;
  }
  one.version = response.version;
  const bool arrived = found->has_value();
  // An answer has all listeners or clusters that exist, and some of the resources of other kinds. An answer without a
  // resource that has not arrived yet may be the reply to an earlier request.
  const bool removed = one.fresh && (kind == XdsKind::listener || kind == XdsKind::cluster);
  if (arrived || removed) {
    one.fresh = arrived;
    one.absent_at = Time::max();
    one.problem = arrived ? std::string() : resource_text(kind, one.name) + " does not exist";
  }
  step.requests.push_back(request(kind, now));
  for (std::size_t i = 0; i < xds_kinds; ++i) {
    if (subscriptions_[i].stale_request) step.requests.push_back(request(static_cast<XdsKind>(i), now));
  }
  const bool demands_other = arrived && whole() && demands_ != arrived_;
  if (demands_other) demands_ = arrived_;
  if (demands_other || (arrived && kind == XdsKind::endpoints)) {
    step.news = News::changed;
  } else if (arrived && whole()) {
    step.news = News::confirmed;
  }
  return step;
}

Time XdsState::next_time() const noexcept {
  return std::ranges::min(subscriptions_, {}, &Subscription::absent_at).absent_at;
}

void XdsState::on_time(Time now) {
  for (std::size_t i = 0; i < xds_kinds; ++i) {
    Subscription& one = subscriptions_[i];
    if (one.absent_at > now) continue;
    one.absent_at = Time::max();
    one.problem = resource_text(static_cast<XdsKind>(i), one.name) + " does not exist: it was not sent within " +
                  std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(absent_timeout_).count()) +
                  " ms";
  }
}

std::string XdsState::problem() const {
  for (const Subscription& one : subscriptions_) {
    if (!one.problem.empty()) return one.problem;
  }
  return {};
}

}  // namespace hawser::cluster
