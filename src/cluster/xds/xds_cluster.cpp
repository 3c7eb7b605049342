#include "cluster/xds/xds_cluster.h"

#include <cstdint>

#include "base/try.h"
#include "cluster/xds/xds_fields.h"
#include "cluster/xds/xds_route.h"

namespace hawser::cluster {
namespace {

constexpr std::uint64_t eds_cluster = 3;  // Cluster.DiscoveryType

}  // namespace

Result<XdsCluster> read_cluster(std::string_view message) {
  TRY(const std::uint64_t discovery, read_number(message, 2));
  if (discovery != eds_cluster) return refuse_resource("the type of the cluster is not EDS, which is not supported");
  TRY(const std::string_view config, read_bytes(message, 3));
  TRY(const std::string_view source, read_bytes(config, 1));
  TRY(const bool same_stream, is_same_stream(source));
  if (!same_stream) {
    return refuse_resource("eds_cluster_config.eds_config is not ads or self, which is not supported");
  }
  TRY(std::string_view name, read_bytes(config, 2));
  if (name.empty()) {
    TRY(name, read_bytes(message, 1));
  }
  return XdsCluster{.endpoints_name = std::string(name)};
}

}  // namespace hawser::cluster
