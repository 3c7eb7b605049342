#pragma once

#include <string>
#include <string_view>

#include "hawser/naming.h"

namespace hawser::cluster {

// The value of an endpoint's key: JSON of etcd's own resolver for grpc-go (client/v3/naming/endpoints). "Metadata" is
// null, or an object with weight, priority, zone and tags.
std::string record_of(const Endpoint& endpoint);

// Reads such a value. Members that have no meaning here are ignored. A value of another format gives an endpoint that
// why_invalid() refuses, and whose address is the beginning of the value, for the reason.
Endpoint endpoint_of(std::string_view record);

}  // namespace hawser::cluster
