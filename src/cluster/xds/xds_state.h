#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/xds/assignment_reader.h"
#include "cluster/xds/xds_messages.h"
#include "cluster/xds/xds_route.h"
#include "hawser/error.h"
#include "hawser/naming.h"
#include "hawser/naming_policy.h"
#include "hawser/time.h"

namespace hawser::cluster {

// The client's side of xDS for one name: a listener leads to routes, these to clusters and these to endpoints. No I/O.
// Resources stay until better ones arrive, also behind the end of a stream.
class XdsState {
 public:
  static constexpr std::size_t name_bytes_max = 2048;  // Limit of the name of a resource.

  // `host` selects the virtual host. `node` is an encoded Node. A resource that was requested `absent_timeout` ago and
  // has not arrived does not exist.
  // `policies`: those of clusters are read.
  XdsState(std::string listener, std::string host, std::string node, Duration absent_timeout, bool policies = true);

  // A stream begins. Returns its first requests. They claim no version, so that the control plane sends everything.
  std::vector<std::string> begin(Time now);

  enum class News : std::uint8_t {
    none,
    changed,    // routes() or cluster() may be others.
    confirmed,  // The control plane has sent all that leads to them, and they are the same.
  };
  struct Step {
    std::vector<std::string> requests;
    News news = News::none;
    bool refused = false;  // The first request refuses the answer.
  };
  // An answer of the control plane, which outlives end_response(), is read in steps, because load assignments may be
  // long. Nothing changes before its end. Fails if the stream must end. on_time() is not called in between.
  Result<void> begin_response(std::string_view response);
  // Does a bounded part of the work. True if there is more.
  bool read_response();
  Step end_response(Time now);
  // The same in one step.
  Result<Step> on_response(std::string_view response, Time now);

  // When on_time() should be called. Time::max(): never.
  Time next_time() const noexcept;
  // True if routes() has become known: it is used without what does not exist.
  bool on_time(Time now);

  // Routes and clusters take effect when all that they lead to has arrived. The first ones do so, too, when the rest
  // does not exist or was refused.
  bool known() const noexcept { return effective_.has_value(); }
  const std::shared_ptr<const XdsRoutes>& routes() const noexcept { return effective_->routes; }
  // One of routes()->clusters, which has endpoints if one of them has.
  const std::string& main() const noexcept { return effective_->main; }
  struct ClusterNow {
    NamingPolicy policy = {};
    // Not null. At most EndpointLimits::endpoints_max of all load assignments together.
    std::shared_ptr<const std::vector<Endpoint>> endpoints = {};
  };
  // One of routes()->clusters. An error: it has no list yet.
  Result<ClusterNow> cluster(std::string_view name) const;
  // Why these may not be what the control plane wants. Empty text: they are, as far as is known.
  std::string problem() const;

 private:
  using Names = std::vector<std::string>;
  // A resource that is wanted.
  struct Resource {
    std::string problem = {};  // Why there is no newer one.
    Time absent_at = Time::max();
    bool asked = false;  // On this stream.
    bool fresh = false;  // It arrived on this stream, and the last answer was good.
  };
  // The resources of one kind that are wanted.
  struct Subscription {
    std::map<std::string, Resource, std::less<>> resources = {};
    std::string version = {};    // The version of the answer that was accepted last on this stream.
    std::string nonce = {};      // The nonce of the last answer on this stream.
    bool requested = false;      // On this stream.
    bool stale_request = false;  // The names have changed since the last request.
  };
  struct Cluster {
    std::string endpoints_name = {};
    NamingPolicy policy = {};
    friend bool operator==(const Cluster&, const Cluster&) = default;
  };
  struct Assignment {
    std::shared_ptr<const std::vector<Endpoint>> endpoints = {};  // Not null.
    double dropped_part = 0;
  };
  // The wanted resources of an answer, by name.
  using Found = std::map<std::string_view, std::string_view>;
  struct Answer {
    XdsResponse response;
    std::optional<XdsKind> kind = {};  // Empty: it is not known.
    Result<Found> found = {};
    Found::const_iterator next = {};  // The load assignment that is being read, by `reader` if that has begun.
    std::optional<AssignmentReader> reader = {};
    std::map<std::string_view, Result<Assignment>> assignments = {};  // The ones before it.
  };
  using Clusters = std::map<std::string, Cluster, std::less<>>;
  struct Effective {
    std::shared_ptr<const XdsRoutes> routes = {};  // Not null.
    std::string main = {};
    Clusters clusters = {};  // Without those that have not arrived.
  };
  Subscription& of(XdsKind kind) noexcept { return subscriptions_[static_cast<std::size_t>(kind)]; }
  const Subscription& of(XdsKind kind) const noexcept { return subscriptions_[static_cast<std::size_t>(kind)]; }
  Result<void> want(XdsKind kind, const Names& names);
  void want_endpoints();
  std::string request(XdsKind kind, Time now, std::string_view refusal = {});
  Result<Found> find(XdsKind kind, const XdsResponse& response) const;
  Result<void> take(XdsKind kind, std::string_view name, std::string_view resource);
  Result<void> take_routes(XdsRoutes routes);
  Result<void> take_cluster(std::string_view name, std::string_view resource);
  Result<void> take_endpoints(std::string_view name);
  Result<Assignment> assignment_read(std::string_view resource);
  // The number of the endpoints of a load assignment, also of one that the present answer has.
  std::size_t endpoints_of(std::string_view assignment) const;
  // Their number in the load assignments of the clusters beside `name`. 0 if that is not one of theirs.
  std::size_t others_of(const Clusters& clusters, std::string_view name) const;
  void refuse(XdsKind kind, std::string_view name, const std::string& why);
  // All that is wanted has arrived on this stream; with `settled`, or does not exist.
  bool whole(bool settled = false) const noexcept;
  // Puts into effect what has arrived, if it is whole. True if that is a change.
  bool apply();
  std::string main_of(const Effective& next) const;
  bool has_endpoints(const Effective& one, const std::string& cluster) const;
  void forget_unused();

  const std::string host_;
  const Duration absent_timeout_;
  const bool policies_;
  std::string node_;
  bool node_sent_ = false;  // On this stream.
  std::array<Subscription, xds_kinds> subscriptions_;
  // The last resources that have arrived, by name: those that are wanted and those that are in effect.
  std::shared_ptr<const XdsRoutes> routes_;  // Null: none yet. The same object while they are the same.
  Clusters clusters_;
  std::map<std::string, Assignment, std::less<>> assignments_;
  std::optional<Effective> effective_;
  std::optional<Answer> answer_;  // Is being read.
};

}  // namespace hawser::cluster
