#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/naming.h"

// The resources of a control plane that lead from a cluster to its endpoints. A resource that is malformed or demands
// what is not supported fails with the text for the control plane.
namespace hawser::cluster {

// Cluster.
struct XdsCluster {
  std::string endpoints_name;  // The name of its ClusterLoadAssignment.
};
Result<XdsCluster> read_cluster(std::string_view message);

// ClusterLoadAssignment: the endpoints that serve, at most EndpointLimits::endpoints_max together with those of other
// clusters of the name. Their weights contain those of the localities.
Result<std::vector<Endpoint>> read_load_assignment(std::string_view message, std::size_t others = 0);

}  // namespace hawser::cluster
