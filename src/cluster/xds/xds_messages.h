#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/xds/xds_fields.h"
#include "hawser/context.h"
#include "hawser/error.h"
#include "hawser/method.h"
#include "hawser/stream.h"
#include "hawser/task.h"
#include "protocol/grpc/proto_bytes.h"

// The two messages of xDS's aggregated streams (envoy/service/discovery/v3), and the method.
namespace hawser::cluster {

// The kinds of resources, in the order in which one leads to the next.
enum class XdsKind : std::uint8_t { listener, route, cluster, endpoints };
inline constexpr std::size_t xds_kinds = 4;
// The types of their messages, without "type.googleapis.com/".
inline constexpr std::array<std::string_view, xds_kinds> xds_types = {
    "envoy.config.listener.v3.Listener", "envoy.config.route.v3.RouteConfiguration", "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment"};

// DiscoveryRequest.
struct XdsRequest {
  XdsKind kind = XdsKind::listener;
  std::string_view version = {};                 // The version of the resources that were accepted last.
  std::string_view node = {};                    // An encoded Node, in the first request of a stream.
  std::span<const std::string_view> names = {};  // The resources. None: none of this kind is wanted any longer.
  std::string_view nonce = {};                   // The answer to which this is the reply has this nonce.
  std::string_view refusal = {};                 // Why that answer is refused. Empty: it is accepted.
};
std::string discovery_request(const XdsRequest& request);

// DiscoveryResponse. Views of the message.
struct XdsResponse {
  std::string_view version = {};
  std::string_view type = {};
  std::string_view nonce = {};
  std::vector<std::string_view> resources = {};  // Each an encoded Any.
};
Result<XdsResponse> read_discovery_response(std::string_view response);

Task<Result<void>> xds_stream(Context&, Reader<protocol::grpc::ProtoBytes>, Writer<protocol::grpc::ProtoBytes>);

}  // namespace hawser::cluster

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::cluster::xds_stream> =
    "envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
