#pragma once

#include <string>
#include <string_view>

#include "hawser/error.h"

namespace hawser::cluster {

// Cluster. One that is malformed or demands what is not supported fails with the text for the control plane.
struct XdsCluster {
  std::string endpoints_name;  // The name of its ClusterLoadAssignment.
};
Result<XdsCluster> read_cluster(std::string_view message);

}  // namespace hawser::cluster
