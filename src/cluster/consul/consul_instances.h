#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/naming.h"

namespace hawser::cluster {

// The endpoints of an answer of Consul to /v1/health/service, without I/O.
struct ConsulInstances {
  std::vector<Endpoint> endpoints;  // The instances that may serve, by address. At most one more than a list may have.
  std::size_t not_serving = 0;      // Number of the others.
};

// An instance with a critical check does not serve. One with a warning has the weight that the service has then, and
// does not serve if that is 0. The metadata of the service are tags of the endpoint, and each tag of Consul is a tag of
// the key "tag"; those beyond EndpointLimits are left out. Fails with `protocol_error`.
Result<ConsulInstances> read_consul_instances(std::string_view text, std::string_view zone_key);

}  // namespace hawser::cluster
