#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"

// The JSON of Kubernetes that naming needs (discovery.k8s.io/v1, meta/v1), without I/O.
namespace hawser::cluster {

struct SliceEndpoint {
  std::string address;  // "10.0.0.1" or "[2001:db8::1]". With a blank: the slice has something else there.
  std::string pod;      // The identifier of the pod, which has an address of each family. Empty: unknown.
  std::string zone;
  bool ready = false;         // If not, it serves while it terminates.
  bool hinted = false;        // It has hints for zones.
  bool for_own_zone = false;  // One of them is for the own zone.
};

struct SlicePort {
  std::string name;
  std::uint16_t port = 0;
};

// A part of the endpoints of a service. All of them have the same ports and one family of addresses.
struct EndpointSlice {
  // Kubernetes puts at most these numbers into a slice.
  static constexpr std::size_t slice_endpoints_max = 1000;
  static constexpr std::size_t slice_ports_max = 100;

  std::string name;
  bool ipv6 = false;
  std::vector<SliceEndpoint> endpoints;  // These may serve.
  std::size_t not_serving = 0;           // Number of the others.
  std::vector<SlicePort> ports;          // Only ports of TCP.
};

// An object of the API: an EndpointSlice; or a Status, which says why something was refused; or a bookmark.
struct KubernetesObject {
  std::string version;       // metadata.resourceVersion. Empty: none.
  bool initial_end = false;  // A bookmark says that the events of the list have ended.
  int code = 0;              // The status of HTTP, if this is a Status.
  std::string message;       // The reason, if this is a Status. Escaped.
  EndpointSlice slice;
};

// An event of a watch. Fails with `protocol_error`.
struct KubernetesEvent {
  enum class Kind : std::uint8_t { other, changed, deleted, bookmark, error };
  Kind kind = Kind::other;
  KubernetesObject object;
};
Result<KubernetesEvent> read_kubernetes_event(std::string_view text, std::string_view own_zone);

// An EndpointSliceList. Fails with `protocol_error`.
struct KubernetesSlices {
  static constexpr std::size_t slices_max = 10'000;
  std::string version;
  std::vector<EndpointSlice> slices;  // One more than slices_max if the list has more.
};
Result<KubernetesSlices> read_kubernetes_slices(std::string_view text, std::string_view own_zone);

// The message of a Status for an error; the beginning of the text if it is not one. Escaped.
std::string kubernetes_reason(std::string_view body);

}  // namespace hawser::cluster
