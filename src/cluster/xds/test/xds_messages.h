#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/xds/xds_messages.h"
#include "protocol/grpc/proto_bytes.h"

// Messages of a control plane, for tests.
namespace hawser::cluster::played_xds {

// A message that is made field by field.
class Fields {
 public:
  Fields& number(unsigned field, std::uint64_t value) {
    protocol::grpc::add_number_field(bytes_, field, value);
    return *this;
  }
  Fields& bytes(unsigned field, std::string_view value) {
    protocol::grpc::add_bytes_field(bytes_, field, value);
    return *this;
  }
  operator std::string() const { return bytes_; }
  operator std::string_view() const { return bytes_; }

 private:
  std::string bytes_;
};

inline std::string any_of(std::string_view type, std::string_view value) {
  return Fields().bytes(1, "type.googleapis.com/" + std::string(type)).bytes(2, value);
}
inline std::string any_of(XdsKind kind, std::string_view value) {
  return any_of(xds_types[static_cast<std::size_t>(kind)], value);
}
inline std::string wrapped(std::uint64_t number) { return Fields().number(1, number); }
inline std::string ads() { return Fields().bytes(3, ""); }

inline std::string route_to(std::string_view cluster, std::string_view match = std::string_view("\x0a\0", 2)) {
  return Fields().bytes(1, match).bytes(2, Fields().bytes(1, cluster));
}
inline std::string virtual_host(std::string_view domain, const std::vector<std::string>& routes) {
  Fields host;
  host.bytes(1, "host").bytes(2, domain);
  for (const std::string& route : routes) host.bytes(3, route);
  return host;
}
inline std::string route_configuration(std::string_view name, const std::vector<std::string>& hosts) {
  Fields configuration;
  configuration.bytes(1, name);
  for (const std::string& host : hosts) configuration.bytes(2, host);
  return configuration;
}
// A route configuration that leads all calls to a cluster.
inline std::string routes_to(std::string_view name, std::string_view cluster) {
  return route_configuration(name, {virtual_host("*", {route_to(cluster)})});
}

inline std::string listener_with(std::string_view name, std::string_view manager) {
  constexpr std::string_view type = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
  return Fields().bytes(1, name).bytes(19, Fields().bytes(1, any_of(type, manager)));
}
inline std::string router() {
  return Fields().bytes(1, "router").bytes(4, any_of("envoy.extensions.filters.http.router.v3.Router", ""));
}
inline std::string listener_by_rds(std::string_view name, std::string_view route) {
  return listener_with(name, Fields().bytes(3, Fields().bytes(1, ads()).bytes(2, route)).bytes(5, router()));
}
inline std::string listener_inline(std::string_view name, std::string_view configuration) {
  return listener_with(name, Fields().bytes(4, configuration).bytes(5, router()));
}

inline std::string eds_config(std::string_view service) {
  Fields config;
  config.bytes(1, ads());
  if (!service.empty()) config.bytes(2, service);
  return config;
}
inline std::string eds_cluster(std::string_view name, std::string_view service = "") {
  return Fields().bytes(1, name).number(2, 3).bytes(3, eds_config(service));
}

struct PlayedEndpoint {
  std::string host;
  std::uint64_t port = 0;
  std::uint64_t weight = 0;  // 0: none is sent.
  std::uint64_t health = 0;
};
inline std::string endpoint_message(const PlayedEndpoint& one) {
  const std::string socket = Fields().bytes(2, one.host).number(3, one.port);
  Fields endpoint;
  endpoint.bytes(1, Fields().bytes(1, Fields().bytes(1, socket)));
  if (one.health != 0) endpoint.number(2, one.health);
  if (one.weight != 0) endpoint.bytes(4, wrapped(one.weight));
  return endpoint;
}
inline std::string locality(std::string_view zone, std::uint64_t weight, std::uint64_t priority,
                            const std::vector<PlayedEndpoint>& endpoints) {
  Fields message;
  message.bytes(1, Fields().bytes(2, zone));
  for (const PlayedEndpoint& one : endpoints) message.bytes(2, endpoint_message(one));
  message.bytes(3, wrapped(weight)).number(5, priority);
  return message;
}
inline std::string duration(std::chrono::nanoseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return Fields()
      .number(1, static_cast<std::uint64_t>(seconds.count()))
      .number(2, static_cast<std::uint64_t>((time - seconds).count()));
}
inline std::string assignment(std::string_view cluster, const std::vector<std::string>& localities) {
  Fields message;
  message.bytes(1, cluster);
  for (const std::string& one : localities) message.bytes(2, one);
  return message;
}

inline std::string response(XdsKind kind, std::string_view version, std::string_view nonce,
                            const std::vector<std::string>& resources) {
  Fields message;
  message.bytes(1, version);
  for (const std::string& one : resources) message.bytes(2, any_of(kind, one));
  message.bytes(4, "type.googleapis.com/" + std::string(xds_types[static_cast<std::size_t>(kind)])).bytes(5, nonce);
  return message;
}

}  // namespace hawser::cluster::played_xds
