#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/xds/xds_cluster.h"
#include "cluster/xds/xds_messages.h"
#include "cluster/xds/xds_route.h"
#include "hawser/error.h"
#include "hawser/naming.h"
#include "hawser/naming_policy.h"
#include "hawser/time.h"

namespace hawser::cluster {

// The client's side of xDS for one name: a listener leads to a route, this to a cluster and this to endpoints. Each of
// these is one resource. No I/O. Resources stay until better ones arrive, also behind the end of a stream.
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
    changed,    // endpoints() or demands() may be others.
    confirmed,  // The control plane has sent all that leads to endpoints(), and they are the same.
  };
  struct Step {
    std::vector<std::string> requests;
    News news = News::none;
    bool refused = false;  // The first request refuses the answer.
  };
  // An answer of the control plane. Fails if the stream must end.
  Result<Step> on_response(std::string_view response, Time now);

  // When on_time() should be called. Time::max(): never.
  Time next_time() const noexcept;
  void on_time(Time now);

  // False until there is a list.
  bool known() const noexcept { return endpoints_.has_value(); }
  const std::vector<Endpoint>& endpoints() const noexcept { return *endpoints_; }
  // The demands of the resources that lead to endpoints(), once all of them are known.
  struct Demands {
    NamingPolicy policy = {};
    std::string service_config = {};  // JSON. Empty: none.
    friend bool operator==(const Demands&, const Demands&) = default;
  };
  const Demands& demands() const noexcept { return demands_; }
  // Why endpoints() may not be what the control plane wants. Empty text: they are, as far as is known.
  std::string problem() const;

 private:
  // One resource that is wanted.
  struct Subscription {
    std::string name = {};     // Empty: none is wanted.
    std::string version = {};  // The version of the answer that was accepted last on this stream.
    std::string nonce = {};    // The nonce of the last answer on this stream.
    std::string problem = {};  // Why there is no newer resource.
    Time absent_at = Time::max();
    bool requested = false;      // On this stream.
    bool fresh = false;          // The resource arrived on this stream, and the last answer was good.
    bool stale_request = false;  // The name has changed since the last request.
  };
  Subscription& of(XdsKind kind) noexcept { return subscriptions_[static_cast<std::size_t>(kind)]; }
  Result<void> want(XdsKind kind, std::string_view name);
  std::string request(XdsKind kind, Time now, std::string_view refusal = {});
  // Finds the wanted resource in an answer; empty if it is not there.
  Result<std::optional<std::string_view>> find(XdsKind kind, const XdsResponse& response);
  Result<void> take(XdsKind kind, std::string_view resource);
  Result<void> take_cluster(std::string_view resource);
  Result<void> take_endpoints(std::string_view resource);
  // All that leads to endpoints() has arrived on this stream.
  bool whole() const noexcept;

  const std::string host_;
  const Duration absent_timeout_;
  const bool policies_;
  std::string node_;
  bool node_sent_ = false;  // On this stream.
  std::array<Subscription, xds_kinds> subscriptions_;
  std::optional<std::vector<Endpoint>> endpoints_;  // Also those of an earlier name, until the new ones arrive.
  Demands demands_;
  Demands arrived_;  // The demands of the last resources.
};

}  // namespace hawser::cluster
