#include "cluster/kubernetes/endpoint_slice.h"

#include <algorithm>
#include <utility>

#include "base/escaped_text.h"
#include "base/try.h"
#include "hawser/naming.h"
#include "json/members.h"
#include "transport/tcp/socket.h"

namespace hawser::cluster {
namespace {

using json::each_item;
using json::each_member;
using json::JsonReader;
using json::text_value;
using json::Token;
using json::TokenKind;

constexpr json::Limits slice_limits{.depth_max = 32};
constexpr std::size_t reason_bytes_max = 300;
constexpr std::size_t slice_name_bytes_max = 253;  // As Kubernetes limits names of objects.
constexpr std::size_t resource_version_bytes_max = 128;
constexpr std::size_t pod_bytes_max = 64;

std::unexpected<Error> bad_json(std::string why) {
  return fail(Error::of_call(Initiator::peer, ErrorCode::protocol_error, "the API server has sent " + std::move(why)));
}

// Another text, such as "unix:/path", could be another kind of address.
std::string host_of(std::string address) {
  // Empty and "*" mean every address there.
  if (address.empty() || address == "*" || !transport::resolve({address, "1"}, false, false)) {
    return "no address: " + address;
  }
  return address.contains(':') ? "[" + address + "]" : address;
}

// Kubernetes means `true` by a `ready` or `serving` that is missing or null, and `false` by a missing `terminating`.
struct SliceConditions {
  bool ready = true;
  bool serving = true;
  bool terminating = false;
};

SliceConditions read_conditions(JsonReader& reader, const Token& begin) {
  SliceConditions conditions;
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name == "ready") {
      conditions.ready = json::truth_value(reader, value, true);
    } else if (name == "serving") {
      conditions.serving = json::truth_value(reader, value, true);
    } else if (name == "terminating") {
      conditions.terminating = json::truth_value(reader, value, false);
    } else {
      json::skip(reader, value);
    }
  });
  return conditions;
}

void read_hints(JsonReader& reader, const Token& begin, std::string_view own_zone, SliceEndpoint& endpoint) {
  each_member(reader, begin, [&](std::string_view name, const Token& zones) {
    if (name != "forZones") return json::skip(reader, zones);
    each_item(reader, zones, [&](const Token& zone) {
      each_member(reader, zone, [&](std::string_view member, const Token& value) {
        if (member != "name") return json::skip(reader, value);
        endpoint.hinted = true;
        if (text_value(reader, value, EndpointLimits::zone_bytes_max) == own_zone) endpoint.for_own_zone = true;
      });
    });
  });
}

void read_slice_endpoint(JsonReader& reader, const Token& begin, std::string_view own_zone, EndpointSlice& slice) {
  SliceEndpoint endpoint;
  SliceConditions conditions;
  bool addressed = false;
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name == "addresses") {
      // All addresses of an endpoint are of one pod; only the first one is used.
      each_item(reader, value, [&](const Token& address) {
        if (std::exchange(addressed, true)) return json::skip(reader, address);
        endpoint.address = host_of(text_value(reader, address, EndpointLimits::address_bytes_max));
      });
    } else if (name == "conditions") {
      conditions = read_conditions(reader, value);
    } else if (name == "zone") {
      endpoint.zone = text_value(reader, value, EndpointLimits::zone_bytes_max);
    } else if (name == "hints") {
      read_hints(reader, value, own_zone, endpoint);
    } else if (name == "targetRef") {
      each_member(reader, value, [&](std::string_view member, const Token& text) {
        if (member == "uid") {
          endpoint.pod = text_value(reader, text, pod_bytes_max);
        } else {
          json::skip(reader, text);
        }
      });
    } else {
      json::skip(reader, value);
    }
  });
  endpoint.ready = conditions.ready;
  const bool serves = conditions.ready || (conditions.serving && conditions.terminating);
  if (!serves || !addressed) {
    ++slice.not_serving;
  } else if (slice.endpoints.size() <= EndpointSlice::slice_endpoints_max) {
    slice.endpoints.push_back(std::move(endpoint));
  }
}

void read_port(JsonReader& reader, const Token& begin, EndpointSlice& slice) {
  SlicePort port;
  bool tcp = true;
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name == "name") {
      port.name = text_value(reader, value, EndpointLimits::tag_bytes_max);
    } else if (name == "port") {
      port.port = json::whole_value<std::uint16_t>(reader, value);
    } else if (name == "protocol") {
      tcp = value.kind == TokenKind::null || text_value(reader, value, 3) == "TCP";
    } else {
      json::skip(reader, value);
    }
  });
  if (tcp && port.port != 0 && slice.ports.size() <= EndpointSlice::slice_ports_max) {
    slice.ports.push_back(std::move(port));
  }
}

void read_metadata_of(JsonReader& reader, const Token& begin, KubernetesObject& object) {
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name == "name") {
      object.slice.name = text_value(reader, value, slice_name_bytes_max);
    } else if (name == "resourceVersion") {
      object.version = text_value(reader, value, resource_version_bytes_max);
    } else if (name == "annotations") {
      each_member(reader, value, [&](std::string_view key, const Token& text) {
        if (key != "k8s.io/initial-events-end") return json::skip(reader, text);
        object.initial_end = text_value(reader, text, 4) == "true";
      });
    } else {
      json::skip(reader, value);
    }
  });
}

KubernetesObject read_object(JsonReader& reader, const Token& begin, std::string_view own_zone) {
  KubernetesObject object;
  std::string family;
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name == "metadata") {
      read_metadata_of(reader, value, object);
    } else if (name == "addressType") {
      family = text_value(reader, value, 4);
    } else if (name == "endpoints") {
      each_item(reader, value, [&](const Token& one) { read_slice_endpoint(reader, one, own_zone, object.slice); });
    } else if (name == "ports") {
      each_item(reader, value, [&](const Token& one) { read_port(reader, one, object.slice); });
    } else if (name == "code") {
      object.code = json::whole_value<int>(reader, value);
    } else if (name == "message") {
      append_escaped(object.message, text_value(reader, value, reason_bytes_max), reason_bytes_max);
    } else {
      json::skip(reader, value);
    }
  });
  object.slice.ipv6 = family == "IPv6";
  // Slices of names of hosts are deprecated, and Kubernetes itself makes none.
  if (family == "FQDN") object.slice.endpoints.clear();
  return object;
}

Result<void> check_version(std::string_view version) {
  const bool good = version.size() <= resource_version_bytes_max && std::ranges::all_of(version, [](char one) {
                      return (one >= '0' && one <= '9') || (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') ||
                             one == '-' || one == '_' || one == '.';
                    });
  if (good) return {};
  std::string shown;
  append_escaped(shown, version, resource_version_bytes_max);
  return bad_json("the resourceVersion '" + shown + "', which is too long or has a byte that it may not have");
}

Result<void> check_slice(const EndpointSlice& slice) {
  if (slice.name.empty() || slice.name.size() > slice_name_bytes_max) {
    return bad_json("a slice whose name is empty or has more than " + std::to_string(slice_name_bytes_max) + " bytes");
  }
  if (slice.endpoints.size() > EndpointSlice::slice_endpoints_max ||
      slice.ports.size() > EndpointSlice::slice_ports_max) {
    std::string shown;
    append_escaped(shown, slice.name, reason_bytes_max);
    return bad_json("the slice '" + shown + "', which has more than " +
                    std::to_string(EndpointSlice::slice_endpoints_max) + " endpoints or " +
                    std::to_string(EndpointSlice::slice_ports_max) + " ports");
  }
  return {};
}

Result<void> check_end(JsonReader& reader) {
  // The reader repeats `invalid`, so that one look at the end suffices.
  if (reader.next().kind == TokenKind::end) return {};
  return bad_json(reader.problem().empty() ? "something that is not an object" : reader.problem());
}

KubernetesEvent::Kind kind_named(std::string_view type) noexcept {
  using Kind = KubernetesEvent::Kind;
  if (type == "ADDED" || type == "MODIFIED") return Kind::changed;
  if (type == "DELETED") return Kind::deleted;
  if (type == "BOOKMARK") return Kind::bookmark;
  return type == "ERROR" ? Kind::error : Kind::other;
}

}  // namespace

Result<KubernetesEvent> read_kubernetes_event(std::string_view text, std::string_view own_zone) {
  JsonReader reader(text, slice_limits);
  KubernetesEvent event;
  const Token begin = reader.next();
  if (begin.kind != TokenKind::begin_object && begin.kind != TokenKind::invalid) {
    return bad_json("an event that is not an object");
  }
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name == "type") {
      event.kind = kind_named(text_value(reader, value, 8));
    } else if (name == "object") {
      event.object = read_object(reader, value, own_zone);
    } else {
      json::skip(reader, value);
    }
  });
  TRY(check_end(reader));
  TRY(check_version(event.object.version));
  using Kind = KubernetesEvent::Kind;
  if (event.kind == Kind::changed || event.kind == Kind::deleted) TRY(check_slice(event.object.slice));
  return event;
}

Result<KubernetesSlices> read_kubernetes_slices(std::string_view text, std::string_view own_zone) {
  JsonReader reader(text, slice_limits);
  KubernetesSlices list;
  Result<void> checked;
  bool listed = false;
  each_member(reader, reader.next(), [&](std::string_view name, const Token& value) {
    if (name == "metadata") {
      KubernetesObject head;
      read_metadata_of(reader, value, head);
      list.version = std::move(head.version);
    } else if (name == "items") {
      listed = true;
      each_item(reader, value, [&](const Token& one) {
        if (list.slices.size() > KubernetesSlices::slices_max) return json::skip(reader, one);
        KubernetesObject object = read_object(reader, one, own_zone);
        if (checked) checked = check_slice(object.slice);
        if (checked) list.slices.push_back(std::move(object.slice));
      });
    } else {
      json::skip(reader, value);
    }
  });
  TRY(check_end(reader));
  TRY(checked);
  TRY(check_version(list.version));
  if (!listed || list.version.empty()) return bad_json("a list without items or without a resourceVersion");
  return list;
}

std::string kubernetes_reason(std::string_view body) {
  JsonReader reader(body, slice_limits);
  std::string message = read_object(reader, reader.next(), {}).message;
  if (message.empty()) append_escaped(message, body, reason_bytes_max);
  return message;
}

}  // namespace hawser::cluster
