#pragma once

#include <string_view>

#include "hawser/error.h"
#include "hawser/naming_policy.h"

// How a control plane wants the endpoints of a cluster to be used. What is malformed or not supported fails with the
// text for the control plane.
namespace hawser::cluster {

// Cluster: the balancing, outliers and the limit of calls.
Result<NamingPolicy> read_cluster_policy(std::string_view message);

// ClusterLoadAssignment: the part of the calls that is dropped.
Result<double> read_dropped_part(std::string_view message);

}  // namespace hawser::cluster
