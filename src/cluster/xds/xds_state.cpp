#include "cluster/xds/xds_state.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "cluster/xds/xds_cluster.h"
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
  of(XdsKind::listener).resources.try_emplace(std::move(listener));
}

// ---- Requests ----

std::vector<std::string> XdsState::begin(Time now) {
  answer_.reset();
  node_sent_ = false;
  std::vector<std::string> requests;
  for (std::size_t i = 0; i < xds_kinds; ++i) {
    Subscription& kind = subscriptions_[i];
    kind.version.clear();
    kind.nonce.clear();
    kind.requested = kind.stale_request = false;
    for (auto& [name, one] : kind.resources) {
      one.absent_at = Time::max();
      one.asked = one.fresh = false;
    }
    if (!kind.resources.empty()) requests.push_back(request(static_cast<XdsKind>(i), now));
  }
  return requests;
}

std::string XdsState::request(XdsKind kind, Time now, std::string_view refusal) {
  Subscription& wanted = of(kind);
  std::vector<std::string_view> names;
  for (auto& [name, one] : wanted.resources) {
    names.push_back(name);
    if (!std::exchange(one.asked, true)) one.absent_at = now + absent_timeout_;
  }
  wanted.requested = true;
  wanted.stale_request = false;
  const bool first = !std::exchange(node_sent_, true);
  return discovery_request({.kind = kind,
                            .version = wanted.version,
                            .node = first ? std::string_view(node_) : std::string_view(),
                            .names = names,
                            .nonce = wanted.nonce,
                            .refusal = refusal});
}

Result<void> XdsState::want(XdsKind kind, const Names& names) {
  for (const std::string& name : names) {
    if (name.size() <= name_bytes_max) continue;
    return refuse_resource("it leads to a name of " + std::to_string(name.size()) + " bytes, more than " +
                           std::to_string(name_bytes_max));
  }
  Subscription& wanted = of(kind);
  auto earlier = std::exchange(wanted.resources, {});
  bool same = true;
  for (const std::string& name : names) {
    if (auto known = earlier.extract(name)) {
      wanted.resources.insert(std::move(known));
    } else if (wanted.resources.try_emplace(name).second) {
      same = false;
    }
  }
  if (!same || !earlier.empty()) wanted.stale_request = wanted.requested || !wanted.resources.empty();
  return {};
}

// While a cluster has not arrived, the endpoints that are in effect are followed on.
void XdsState::want_endpoints() {
  Names names;
  bool all = true;
  for (const auto& [name, wanted] : of(XdsKind::cluster).resources) {
    if (const auto known = clusters_.find(name); known != clusters_.end()) {
      names.push_back(known->second.endpoints_name);
    } else {
      all = false;
    }
  }
  if (!all && effective_) {
    for (const auto& [name, one] : effective_->clusters) names.push_back(one.endpoints_name);
  }
  static_cast<void>(want(XdsKind::endpoints, names));  // take_cluster() has checked the names.
}

// ---- Answers ----

Result<XdsState::Found> XdsState::find(XdsKind kind, const XdsResponse& response) const {
  Found found;
  for (const std::string_view encoded : response.resources) {
    TRY(const NamedResource resource, open_resource(encoded));
    if (resource.type != xds_types[static_cast<std::size_t>(kind)]) {
      return refuse_resource("the answer has a resource of the type " + quoted_name(resource.type));
    }
    if (!of(kind).resources.contains(resource.name)) continue;
    if (!found.emplace(resource.name, resource.message).second) return refuse_resource("the answer has it twice");
  }
  return found;
}

Result<void> XdsState::take(XdsKind kind, std::string_view name, std::string_view resource) {
  switch (kind) {
    case XdsKind::listener: {
      TRY(XdsListener listener, read_listener(resource, host_));
      TRY(want(XdsKind::route, listener.routes ? Names() : Names{listener.route_name}));
      return listener.routes ? take_routes(std::move(*listener.routes)) : Result<void>();
    }
    case XdsKind::route: {
      TRY(XdsRoutes routes, read_route_configuration(resource, host_));
      return take_routes(std::move(routes));
    }
    case XdsKind::cluster: return take_cluster(name, resource);
    case XdsKind::endpoints: break;
  }
  return take_endpoints(name);
}

Result<void> XdsState::take_routes(XdsRoutes routes) {
  TRY(want(XdsKind::cluster, routes.clusters));
  if (routes_ != nullptr && *routes_ == routes) return {};
  if (effective_ && *effective_->routes == routes) {
    routes_ = effective_->routes;
  } else {
    routes_ = std::make_shared<const XdsRoutes>(std::move(routes));
  }
  return {};
}

Result<void> XdsState::take_cluster(std::string_view name, std::string_view resource) {
  TRY(XdsCluster read, read_cluster(resource));
  Cluster cluster{.endpoints_name = std::move(read.endpoints_name)};
  if (cluster.endpoints_name.size() > name_bytes_max) {
    return refuse_resource("its load assignment has a name of " + std::to_string(cluster.endpoints_name.size()) +
                           " bytes, more than " + std::to_string(name_bytes_max));
  }
  if (policies_) {
    TRY(cluster.policy, read_cluster_policy(resource));
  }
  clusters_.insert_or_assign(std::string(name), std::move(cluster));
  return {};
}

Result<void> XdsState::take_endpoints(std::string_view name) {
  TRY(Assignment assignment, std::move(answer_->assignments.find(name)->second));
  assignments_.insert_or_assign(std::string(name), std::move(assignment));
  return {};
}

std::size_t XdsState::endpoints_of(std::string_view assignment) const {
  if (const auto read = answer_->assignments.find(assignment); read != answer_->assignments.end() && read->second) {
    return read->second->endpoints->size();
  }
  const auto known = assignments_.find(assignment);
  return known == assignments_.end() ? 0 : known->second.endpoints->size();
}

std::size_t XdsState::others_of(const Clusters& clusters, std::string_view name) const {
  std::set<std::string_view> names;  // Clusters may share a load assignment.
  for (const auto& [cluster, one] : clusters) names.insert(one.endpoints_name);
  if (names.erase(name) == 0) return 0;
  std::size_t sum = 0;
  for (const std::string_view one : names) sum += endpoints_of(one);
  return sum;
}

void XdsState::refuse(XdsKind kind, std::string_view name, const std::string& why) {
  Resource& one = of(kind).resources.find(name)->second;
  one.fresh = false;
  one.absent_at = Time::max();
  one.problem = resource_text(kind, name) + " was refused: " + why;
}

Result<void> XdsState::begin_response(std::string_view message) {
  TRY(XdsResponse response, read_discovery_response(message));
  Answer& answer = answer_.emplace(Answer{.response = std::move(response)});
  const auto type = std::ranges::find(xds_types, answer.response.type);
  if (type == xds_types.end()) return {};
  answer.kind = static_cast<XdsKind>(type - xds_types.begin());
  if (!of(*answer.kind).resources.empty()) answer.found = find(*answer.kind, answer.response);
  if (answer.found) answer.next = answer.found->begin();
  return {};
}

bool XdsState::read_response() {
  Answer& answer = *answer_;
  if (answer.kind != XdsKind::endpoints || !answer.found || answer.next == answer.found->end()) return false;
  const auto& [name, resource] = *answer.next;
  if (!answer.reader) {
    // Clusters that are wanted, and clusters that are in effect until then, count apart.
    std::size_t others = others_of(clusters_, name);
    if (effective_) others = std::max(others, others_of(effective_->clusters, name));
    answer.reader.emplace(resource, others);
  }
  const Result<bool> more = answer.reader->work();
  if (more && *more) return true;
  answer.assignments.emplace(name, more ? assignment_read(resource) : fail(more.error()));
  answer.reader.reset();
  return ++answer.next != answer.found->end();
}

Result<XdsState::Assignment> XdsState::assignment_read(std::string_view resource) {
  Assignment read{.endpoints = std::make_shared<const std::vector<Endpoint>>(answer_->reader->take())};
  if (policies_) {
    TRY(read.dropped_part, read_dropped_part(resource));
  }
  return read;
}

Result<XdsState::Step> XdsState::on_response(std::string_view message, Time now) {
  TRY(begin_response(message));
  while (read_response()) {
  }
  return end_response(now);
}

XdsState::Step XdsState::end_response(Time now) {
  const std::optional<Answer>& answer = answer_;
  Step step;
  if (!answer->kind) return step;
  const XdsResponse& response = answer->response;
  const XdsKind kind = *answer->kind;
  Subscription& wanted = of(kind);
  wanted.nonce = response.nonce;
  if (wanted.resources.empty()) {
    // Nobody asked. The answer is accepted, so that the control plane waits for nothing.
    wanted.version = response.version;
    step.requests.push_back(request(kind, now));
    return step;
  }
  std::string refusal;
  bool arrived = false;
  const Result<Found>& found = answer->found;
  if (!found) {
    for (const auto& [name, one] : wanted.resources) refuse(kind, name, found.error().text);
    refusal = wanted.resources.begin()->second.problem;
  } else {
    for (const auto& [name, resource] : *found) {
      if (const Result<void> taken = take(kind, name, resource); !taken) {
        refuse(kind, name, taken.error().text);
        if (refusal.empty()) refusal = wanted.resources.find(name)->second.problem;
        continue;
      }
      arrived = true;
      Resource& one = wanted.resources.find(name)->second;
      one.fresh = true;
      one.absent_at = Time::max();
      one.problem.clear();
    }
    // An answer has all listeners or clusters that exist, and some of the resources of other kinds. An answer without a
    // resource that has not arrived yet may be the reply to an earlier request.
    for (auto& [name, one] : wanted.resources) {
      if (!one.fresh || found->contains(name) || (kind != XdsKind::listener && kind != XdsKind::cluster)) continue;
      one.fresh = false;
      one.problem = resource_text(kind, name) + " does not exist";
    }
  }
  // Behind all resources of the answer: two clusters may exchange their load assignments.
  if (kind != XdsKind::endpoints) want_endpoints();
  step.refused = !refusal.empty();
  if (!step.refused) wanted.version = response.version;
  step.requests.push_back(request(kind, now, refusal));
  const bool applied = apply();
  forget_unused();
  for (std::size_t i = 0; i < xds_kinds; ++i) {
    if (subscriptions_[i].stale_request) step.requests.push_back(request(static_cast<XdsKind>(i), now));
  }
  if (applied || (known() && arrived && kind == XdsKind::endpoints)) {
    step.news = News::changed;
  } else if (arrived && whole()) {
    step.news = News::confirmed;
  }
  answer_.reset();
  return step;
}

// ---- Effect ----

bool XdsState::whole(bool settled) const noexcept {
  for (const Subscription& kind : subscriptions_) {
    for (const auto& [name, one] : kind.resources) {
      const bool here = one.fresh && one.problem.empty();
      if (!here && (!settled || (one.problem.empty() && !one.fresh))) return false;
    }
  }
  return routes_ != nullptr;
}

bool XdsState::has_endpoints(const Effective& one, const std::string& cluster) const {
  const auto known = one.clusters.find(cluster);
  if (known == one.clusters.end()) return false;
  const auto assigned = assignments_.find(known->second.endpoints_name);
  return assigned != assignments_.end() && !assigned->second.endpoints->empty();
}

// The main cluster stays as long as it can, so that its connections do. Otherwise a new one takes its place.
std::string XdsState::main_of(const Effective& next) const {
  const auto serves = [&](const std::string& cluster) { return has_endpoints(next, cluster); };
  const auto appears = [&](const std::string& cluster) {
    return serves(cluster) && (!effective_ || !effective_->routes->has(cluster));
  };
  const std::vector<std::string>& clusters = next.routes->clusters;
  if (effective_ && next.routes->has(effective_->main)) return effective_->main;
  auto chosen = std::ranges::find_if(clusters, appears);
  if (chosen == clusters.end()) chosen = std::ranges::find_if(clusters, serves);
  return chosen == clusters.end() ? clusters.front() : *chosen;
}

bool XdsState::apply() {
  if (!whole(!known())) return false;
  Effective next{.routes = routes_};
  for (const std::string& name : routes_->clusters) {
    if (const auto cluster = clusters_.find(name); cluster != clusters_.end()) next.clusters.insert(*cluster);
  }
  if (!known() && std::ranges::none_of(routes_->clusters, [&](const auto& one) {
        const auto cluster = next.clusters.find(one);
        return cluster != next.clusters.end() && assignments_.contains(cluster->second.endpoints_name);
      })) {
    return false;
  }
  next.main = main_of(next);
  const bool changed = !known() || effective_->routes != next.routes || effective_->clusters != next.clusters;
  effective_ = std::move(next);
  return changed;
}

void XdsState::forget_unused() {
  std::erase_if(clusters_, [&](const auto& one) { return !of(XdsKind::cluster).resources.contains(one.first); });
  std::erase_if(assignments_, [&](const auto& one) {
    const auto uses = [&one](const auto& cluster) { return cluster.second.endpoints_name == one.first; };
    return !of(XdsKind::endpoints).resources.contains(one.first) &&
           (!effective_ || std::ranges::none_of(effective_->clusters, uses));
  });
}

Result<XdsState::ClusterNow> XdsState::cluster(std::string_view name) const {
  const auto known = effective_->clusters.find(name);
  const auto assigned =
      known == effective_->clusters.end() ? assignments_.end() : assignments_.find(known->second.endpoints_name);
  if (assigned == assignments_.end()) {
    const std::string why = problem();
    return fail(Error::of_call(Initiator::peer, ErrorCode::unavailable,
                               why.empty() ? resource_text(XdsKind::cluster, name) + " has not arrived" : why));
  }
  ClusterNow now{.policy = known->second.policy, .endpoints = assigned->second.endpoints};
  now.policy.dropped_part = assigned->second.dropped_part;
  return now;
}

// ---- Time ----

Time XdsState::next_time() const noexcept {
  Time next = Time::max();
  for (const Subscription& kind : subscriptions_) {
    for (const auto& [name, one] : kind.resources) next = std::min(next, one.absent_at);
  }
  return next;
}

bool XdsState::on_time(Time now) {
  for (std::size_t i = 0; i < xds_kinds; ++i) {
    for (auto& [name, one] : subscriptions_[i].resources) {
      if (one.absent_at > now) continue;
      one.absent_at = Time::max();
      one.problem = resource_text(static_cast<XdsKind>(i), name) + " does not exist: it was not sent within " +
                    std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(absent_timeout_).count()) +
                    " ms";
    }
  }
  return !known() && apply();
}

std::string XdsState::problem() const {
  for (const Subscription& kind : subscriptions_) {
    for (const auto& [name, one] : kind.resources) {
      if (!one.problem.empty()) return one.problem;
    }
  }
  return {};
}

}  // namespace hawser::cluster
