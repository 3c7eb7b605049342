#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/naming_policy.h"
#include "hawser/service_config.h"
#include "hawser/time.h"

// The demands of the routes of a control plane on the calls of methods. A route that is malformed or not supported
// fails with the text for the control plane.
namespace hawser::cluster {

// Retries of calls that end with one of some statuses (gRFC A44).
struct XdsRetry {
  std::vector<std::string_view> statuses;  // By their names. Empty: the route demands nothing.
  std::uint64_t attempts = 2;
  Duration pause_first = std::chrono::milliseconds(25);
  Duration pause_max = std::chrono::milliseconds(250);
  friend bool operator==(const XdsRetry&, const XdsRetry&) = default;
};
Result<XdsRetry> read_retry_policy(std::string_view message);

// The demands of a route on its calls.
struct XdsDemands {
  std::optional<Duration> timeout = {};
  std::optional<XdsRetry> retry = {};
  std::vector<NamingPolicy::Key> keys = {};
  friend bool operator==(const XdsDemands&, const XdsDemands&) = default;
};
// RouteAction. `retry` is that of the virtual host, which counts if the route has none.
Result<XdsDemands> read_route_demands(std::string_view action, const std::optional<XdsRetry>& retry);

// The same as options of calls.
MethodConfig config_of(const XdsDemands& demands);

}  // namespace hawser::cluster
