#include "cluster/consul/consul_instances.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

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

constexpr json::Limits instance_limits{.depth_max = 32};

enum class ConsulHealth : std::uint8_t { passing, warning, critical };

// The place of a service, or that of its node.
struct ConsulPlace {
  std::string address;
  std::string zone;           // The zone of its locality.
  std::string zone_metadata;  // The value of the key of zones.
};

struct ConsulInstance {
  ConsulPlace node;
  ConsulPlace service;
  std::uint16_t port = 0;
  std::uint32_t weight_passing = 1;
  std::uint32_t weight_warning = 1;
  std::vector<std::pair<std::string, std::string>> tags;
  ConsulHealth health = ConsulHealth::passing;
};

void keep_tag(ConsulInstance& instance, std::string key, std::string value) {
  if (instance.tags.size() == EndpointLimits::tags_max || key.empty()) return;
  if (std::max(key.size(), value.size()) > EndpointLimits::tag_bytes_max) return;
  instance.tags.emplace_back(std::move(key), std::move(value));
}

// Calls `entry(key, value)` for each pair of metadata.
template <class Entry>
void each_metadata(JsonReader& reader, const Token& begin, Entry entry) {
  each_member(reader, begin, [&](std::string_view written, const Token& value) {
    std::string key;
    json::decode({.kind = TokenKind::name, .written = written, .escaped = written.contains('\\')}, key);
    entry(std::move(key), text_value(reader, value, EndpointLimits::tag_bytes_max));
  });
}

void read_locality(JsonReader& reader, const Token& begin, ConsulPlace& place) {
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name != "Zone") return json::skip(reader, value);
    place.zone = text_value(reader, value, EndpointLimits::zone_bytes_max);
  });
}

void read_node(JsonReader& reader, const Token& begin, std::string_view zone_key, ConsulPlace& node) {
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name == "Address") {
      node.address = text_value(reader, value, EndpointLimits::address_bytes_max);
    } else if (name == "Locality") {
      read_locality(reader, value, node);
    } else if (name == "Meta") {
      each_metadata(reader, value, [&](const std::string& key, std::string text) {
        if (key == zone_key) node.zone_metadata = std::move(text);
      });
    } else {
      json::skip(reader, value);
    }
  });
}

void read_weights(JsonReader& reader, const Token& begin, ConsulInstance& instance) {
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name == "Passing") {
      instance.weight_passing = json::whole_value<std::uint32_t>(reader, value);
    } else if (name == "Warning") {
      instance.weight_warning = json::whole_value<std::uint32_t>(reader, value);
    } else {
      json::skip(reader, value);
    }
  });
}

void read_service(JsonReader& reader, const Token& begin, std::string_view zone_key, ConsulInstance& instance) {
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name == "Address") {
      instance.service.address = text_value(reader, value, EndpointLimits::address_bytes_max);
    } else if (name == "Port") {
      instance.port = json::whole_value<std::uint16_t>(reader, value);
    } else if (name == "Locality") {
      read_locality(reader, value, instance.service);
    } else if (name == "Weights") {
      read_weights(reader, value, instance);
    } else if (name == "Tags") {
      each_item(reader, value, [&](const Token& tag) {
        keep_tag(instance, "tag", text_value(reader, tag, EndpointLimits::tag_bytes_max));
      });
    } else if (name == "Meta") {
      each_metadata(reader, value, [&](std::string key, std::string text) {
        if (key == zone_key) instance.service.zone_metadata = text;
        keep_tag(instance, std::move(key), std::move(text));
      });
    } else {
      json::skip(reader, value);
    }
  });
}

// A status that is not known counts as critical.
ConsulHealth health_named(std::string_view status) noexcept {
  if (status == "passing") return ConsulHealth::passing;
  return status == "warning" ? ConsulHealth::warning : ConsulHealth::critical;
}

// The worst check counts, as in Consul.
void read_checks(JsonReader& reader, const Token& begin, ConsulInstance& instance) {
  each_item(reader, begin, [&](const Token& check) {
    each_member(reader, check, [&](std::string_view name, const Token& value) {
      if (name != "Status") return json::skip(reader, value);
      instance.health = std::max(instance.health, health_named(text_value(reader, value, 8)));
    });
  });
}

ConsulInstance read_instance(JsonReader& reader, const Token& begin, std::string_view zone_key) {
  ConsulInstance instance;
  each_member(reader, begin, [&](std::string_view name, const Token& value) {
    if (name == "Node") {
      read_node(reader, value, zone_key, instance.node);
    } else if (name == "Service") {
      read_service(reader, value, zone_key, instance);
    } else if (name == "Checks") {
      read_checks(reader, value, instance);
    } else {
      json::skip(reader, value);
    }
  });
  return instance;
}

// Another text, such as "unix:/path", could be another kind of address: the blank lets the check of the list find it.
std::string host_text(const std::string& address) {
  const bool name = !address.empty() && std::ranges::all_of(address, [](char one) {
    return (one >= '0' && one <= '9') || (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || one == '.' ||
           one == '-' || one == '_';
  });
  if (name) return address;
  if (address.contains(':') && transport::resolve({address, "1"}, false, false)) return "[" + address + "]";
  return "no address: " + address;
}

std::string& first_set(std::string& one, std::string& other) { return one.empty() ? other : one; }

Endpoint endpoint_of(ConsulInstance& instance, std::uint32_t weight) {
  std::string& zone =
      first_set(instance.service.zone,
                first_set(instance.service.zone_metadata, first_set(instance.node.zone, instance.node.zone_metadata)));
  if (zone.size() > EndpointLimits::zone_bytes_max) zone.clear();
  return {.address = host_text(first_set(instance.service.address, instance.node.address)) + ":" +
                     std::to_string(instance.port),
          .weight = std::min(weight, EndpointLimits::weight_max),
          .zone = std::move(zone),
          .tags = std::move(instance.tags)};
}

void keep_instance(ConsulInstances& found, ConsulInstance instance) {
  const bool passing = instance.health == ConsulHealth::passing;
  const std::uint32_t weight = passing ? instance.weight_passing : instance.weight_warning;
  if (instance.health == ConsulHealth::critical || weight == 0) {
    ++found.not_serving;
  } else if (found.endpoints.size() <= EndpointLimits::endpoints_max) {
    found.endpoints.push_back(endpoint_of(instance, weight));
  }
}

}  // namespace

Result<ConsulInstances> read_consul_instances(std::string_view text, std::string_view zone_key) {
  JsonReader reader(text, instance_limits);
  ConsulInstances found;
  const Token begin = reader.next();
  each_item(reader, begin, [&](const Token& one) { keep_instance(found, read_instance(reader, one, zone_key)); });
  // The reader repeats `invalid`, so that one look at the end suffices.
  if (reader.next().kind != TokenKind::end || begin.kind != TokenKind::begin_list) {
    return fail(Error::of_call(
        Initiator::peer, ErrorCode::protocol_error,
        "the agent has sent " + (reader.problem().empty() ? "something that is not a list" : reader.problem())));
  }
  // Consul orders them by chance. Another order is not a change.
  std::ranges::sort(found.endpoints, {}, &Endpoint::address);
  return found;
}

}  // namespace hawser::cluster
