#include "cluster/xds/xds_cluster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/try.h"
#include "cluster/xds/xds_fields.h"
#include "cluster/xds/xds_route.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::ProtoField;

constexpr std::uint64_t eds_cluster = 3;        // Cluster.DiscoveryType
constexpr std::uint64_t unknown_health = 0;     // HealthStatus: no checks are made, or none has ended.
constexpr std::uint64_t healthy = 1;            // HealthStatus
constexpr std::uint64_t udp_protocol = 1;       // SocketAddress.Protocol
constexpr double weight_of_heaviest = 100'000;  // In a priority whose endpoints differ.

struct XdsLocality {
  std::string zone;
  std::uint64_t weight = 0;
  std::uint64_t priority = 0;
  double weights = 0;                                            // Sum of those of the endpoints that serve.
  std::vector<std::pair<std::string, std::uint64_t>> endpoints;  // Addresses, and weights from 1 on.
};

Result<std::string> read_socket_address(std::string_view message) {
  std::string host;
  std::uint64_t port = 0;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1:
        if (field.value == udp_protocol) return refuse_resource("an endpoint has an address of UDP");
        break;
      case 2: host = field.bytes; break;
      case 3: port = field.value; break;
      case 4: return refuse_resource("an endpoint has a named port, which is not supported");
      default: break;
    }
    return {};
  };
  TRY(read_fields(message, visit));
  if (host.contains(':')) host = "[" + host + "]";
  return host + ":" + std::to_string(port);
}

// Address.
Result<std::string> read_address(std::string_view message) {
  TRY(const std::string_view socket, read_bytes(message, 1));
  if (!socket.empty()) return read_socket_address(socket);
  TRY(const std::string_view pipe, read_bytes(message, 2));
  TRY(const std::string_view path, read_bytes(pipe, 1));
  if (path.empty()) return refuse_resource("an endpoint has no address and port, and no pipe");
  return "unix:" + std::string(path);
}

// LbEndpoint.
Result<void> read_endpoint(std::string_view message, XdsLocality& locality) {
  std::string_view endpoint;
  std::uint64_t health = unknown_health;
  std::uint64_t weight = 1;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number == 1) endpoint = field.bytes;
    if (field.number == 2) health = field.value;
    if (field.number == 4) return assign(weight, read_wrapped_number(field.bytes));
    return {};
  };
  TRY(read_fields(message, visit));
  TRY(const std::string_view place, read_bytes(endpoint, 1));
  TRY(std::string address, read_address(place));
  if (weight == 0) return refuse_resource("an endpoint has the weight 0");
  if (health != unknown_health && health != healthy) return {};
  locality.weights += static_cast<double>(weight);
  locality.endpoints.emplace_back(std::move(address), weight);
  return {};
}

// Locality.
Result<std::string> read_zone(std::string_view message) {
  TRY(const std::string_view zone, read_bytes(message, 2));
  if (zone.size() <= EndpointLimits::zone_bytes_max) return std::string(zone);
  return refuse_resource("a zone has " + std::to_string(zone.size()) + " bytes, more than " +
                         std::to_string(EndpointLimits::zone_bytes_max));
}

// LocalityLbEndpoints. With the weight 0 it may lack endpoints: it gets no calls.
// `before`: endpoints that serve, of other localities.
Result<XdsLocality> read_locality(std::string_view message, std::size_t before, std::size_t others) {
  XdsLocality locality;
  bool fits = true;  // The weight may be behind the endpoints.
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1: return assign(locality.zone, read_zone(field.bytes));
      case 2:
        if (!fits) break;
        TRY(read_endpoint(field.bytes, locality));
        fits = locality.endpoints.size() + before + others <= EndpointLimits::endpoints_max;
        break;
      case 3: return assign(locality.weight, read_wrapped_number(field.bytes));
      case 5: locality.priority = field.value; break;
      default: break;
    }
    return {};
  };
  TRY(read_fields(message, visit));
  if (!fits && locality.weight != 0) {
    return refuse_resource("more than " + std::to_string(EndpointLimits::endpoints_max) + " endpoints serve" +
                           (others == 0 ? "" : ", of which other clusters of the name have " + std::to_string(others)));
  }
  if (locality.priority > EndpointLimits::priority_max) {
    return refuse_resource("the priority " + std::to_string(locality.priority) + " is above " +
                           std::to_string(EndpointLimits::priority_max));
  }
  return locality;
}

// Adds the endpoints of one priority. The calls of a locality go to its endpoints by their weights.
void add_endpoints(const std::vector<XdsLocality>& localities, std::uint64_t priority, std::vector<Endpoint>& out) {
  std::vector<double> shares;
  for (const XdsLocality& locality : localities) {
    if (locality.priority != priority) continue;
    for (const auto& [address, weight] : locality.endpoints) {
      shares.push_back(static_cast<double>(locality.weight) * static_cast<double>(weight) / locality.weights);
    }
  }
  if (shares.empty()) return;
  const auto [least, most] = std::ranges::minmax(shares);
  const double scale = most - least < most * 1e-9 ? 1 / most : weight_of_heaviest / most;
  std::size_t next = 0;
  for (const XdsLocality& locality : localities) {
    if (locality.priority != priority) continue;
    for (const auto& [address, weight] : locality.endpoints) {
      out.push_back({.address = address,
                     .weight = static_cast<std::uint32_t>(std::max(1.0, std::round(shares[next++] * scale))),
                     .priority = static_cast<std::uint32_t>(priority),
                     .zone = locality.zone});
    }
  }
}

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

Result<std::vector<Endpoint>> read_load_assignment(std::string_view message, std::size_t others) {
  std::vector<XdsLocality> localities;
  std::array<bool, EndpointLimits::priority_max + 1> used{};
  std::size_t count = 0;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != 2) return {};
    TRY(XdsLocality locality, read_locality(field.bytes, count, others));
    if (locality.weight == 0) return {};  // It gets no calls.
    used[locality.priority] = true;
    count += locality.endpoints.size();
    if (!locality.endpoints.empty()) localities.push_back(std::move(locality));
    return {};
  };
  TRY(read_fields(message, visit));
  if (!std::ranges::is_sorted(used, std::greater())) {
    return refuse_resource("a priority is missing: they must be 0, 1, 2 and so on");
  }
  std::vector<Endpoint> endpoints;
  for (std::uint64_t priority = 0; priority < used.size(); ++priority) add_endpoints(localities, priority, endpoints);
  return endpoints;
}

}  // namespace hawser::cluster
