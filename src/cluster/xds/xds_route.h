#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/naming_policy.h"

// The resources of a control plane that lead from a name to a cluster. A resource that is malformed or demands what is
// not supported fails with the text for the control plane.
namespace hawser::cluster {

// The part of a RouteConfiguration that concerns one host.
struct XdsRoute {
  std::string cluster;
  std::string service_config = {};  // The demands on methods. Empty: none.
  std::vector<NamingPolicy::Key> keys = {};
};
Result<XdsRoute> read_route_configuration(std::string_view message, std::string_view host);

// Listener. It has one of the two.
struct XdsListener {
  std::string route_name = {};  // The name of a RouteConfiguration.
  std::optional<XdsRoute> route = {};
};
Result<XdsListener> read_listener(std::string_view message, std::string_view host);

// True if a field of type ConfigSource demands the stream on which it was sent.
Result<bool> is_same_stream(std::string_view config_source);

}  // namespace hawser::cluster
