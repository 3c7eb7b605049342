#include "cluster/xds/xds_bootstrap.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "base/try.h"
#include "cluster/json_value.h"
#include "cluster/xds/xds_fields.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::add_bytes_field;
using protocol::grpc::add_number_field;

constexpr std::size_t bootstrap_bytes_max = std::size_t{1} << 20;
constexpr std::size_t servers_max = 32;

std::unexpected<Error> bad_bootstrap(const std::string& what) {
  return fail(ErrorCode::invalid_argument, "xDS bootstrap: " + what);
}

// The text of a member; empty if it is absent.
std::string text_of(const JsonValue& object, std::string_view name) {
  const JsonValue* const member = object.find(name);
  return member != nullptr && member->kind == JsonValue::Kind::text ? member->text : std::string();
}

void add_text(std::string& message, unsigned field, const std::string& text) {
  if (!text.empty()) add_bytes_field(message, field, text);
}

std::string struct_of(const JsonValue& object);

// google.protobuf.Value. The depth of the JSON bounds the recursion.
std::string value_message(const JsonValue& json) {
  std::string message;
  switch (json.kind) {
    case JsonValue::Kind::null: add_number_field(message, 1, 0); break;
    case JsonValue::Kind::number: {
      message += '\x11';  // Field 2, eight bytes.
      const auto bits = std::bit_cast<std::uint64_t>(json.number);
      for (unsigned shift = 0; shift < 64; shift += 8) message += static_cast<char>(bits >> shift);
      break;
    }
    case JsonValue::Kind::text: add_bytes_field(message, 3, json.text); break;
    case JsonValue::Kind::boolean: add_number_field(message, 4, json.text == "true" ? 1 : 0); break;
    case JsonValue::Kind::object: add_bytes_field(message, 5, struct_of(json)); break;
    case JsonValue::Kind::list: {
      std::string list;
      for (const JsonValue& item : json.items) add_bytes_field(list, 1, value_message(item));
      add_bytes_field(message, 6, list);
      break;
    }
  }
  return message;
}

// google.protobuf.Struct.
std::string struct_of(const JsonValue& object) {
  std::string message;
  for (std::size_t i = 0; i < object.names.size(); ++i) {
    std::string entry;
    add_bytes_field(entry, 1, object.names[i]);
    add_bytes_field(entry, 2, value_message(object.items[i]));
    add_bytes_field(message, 1, entry);
  }
  return message;
}

// Node.
std::string node_of(const JsonValue& whole) {
  std::string message;
  if (const JsonValue* const node = whole.find("node")) {
    add_text(message, 1, text_of(*node, "id"));
    add_text(message, 2, text_of(*node, "cluster"));
    if (const JsonValue* const metadata = node->find("metadata")) add_bytes_field(message, 3, struct_of(*metadata));
    if (const JsonValue* const locality = node->find("locality")) {
      std::string place;
      add_text(place, 1, text_of(*locality, "region"));
      add_text(place, 2, text_of(*locality, "zone"));
      add_text(place, 3, text_of(*locality, "sub_zone"));
      add_bytes_field(message, 4, place);
    }
  }
  add_bytes_field(message, 6, "hawser");
  add_bytes_field(message, 10, "envoy.lb.does_not_support_overprovisioning");
  add_bytes_field(message, 10, "xds.config.resource-in-sotw");
  return message;
}

// True if the credentials of the server permit the connections.
bool permits(const JsonValue& server, bool secured) {
  const JsonValue* const credentials = server.find("channel_creds");
  if (credentials == nullptr) return false;
  return std::ranges::any_of(credentials->items, [&](const JsonValue& one) {
    const std::string type = text_of(one, "type");
    return type == "insecure" || (secured && type == "tls");
  });
}

}  // namespace

Result<XdsBootstrap> parse_xds_bootstrap(std::string_view json, bool secured) {
  if (json.size() > bootstrap_bytes_max) return bad_bootstrap("the text has more than 1 MiB");
  const auto whole = read_json(json);
  if (!whole) return bad_bootstrap("the text is malformed: " + whole.error().text);
  const JsonValue* const servers = whole->find("xds_servers");
  if (servers == nullptr || servers->kind != JsonValue::Kind::list || servers->items.empty() ||
      servers->items.size() > servers_max) {
    return bad_bootstrap("xds_servers must be a list of 1 to " + std::to_string(servers_max) + " servers");
  }
  XdsBootstrap bootstrap{.servers = {},
                         .node = node_of(*whole),
                         .listener_template = text_of(*whole, "client_default_listener_resource_name_template")};
  for (const JsonValue& server : servers->items) {
    const std::string uri = text_of(server, "server_uri");
    std::string_view address = uri;
    if (address.starts_with("dns:")) address.remove_prefix(address.starts_with("dns:///") ? 7 : 4);
    if (address.empty() || (address.contains('/') && !address.starts_with("unix:/"))) {
      return bad_bootstrap("server_uri must be host:port, dns:///host:port or unix:/path, and is " + quoted_name(uri));
    }
    if (!permits(server, secured)) {
      return bad_bootstrap("channel_creds of " + quoted_name(uri) +
                           " must have the type insecure, or tls with a TlsClient in XdsOptions::security");
    }
    bootstrap.servers.emplace_back(address);
  }
  if (bootstrap.listener_template.starts_with("xdstp:")) {
    return bad_bootstrap(
        "names that begin with xdstp: are not supported: change "
        "client_default_listener_resource_name_template");
  }
  return bootstrap;
}

Result<std::string> find_xds_bootstrap() {
  if (const char* const path = std::getenv("GRPC_XDS_BOOTSTRAP"); path != nullptr && *path != '\0') {
    std::ifstream file(path, std::ios::binary);
    std::string text(bootstrap_bytes_max + 1, '\0');
    if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file.is_open() || file.bad()) {
      return bad_bootstrap("the file " + quoted_name(path) + " of GRPC_XDS_BOOTSTRAP cannot be read");
    }
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
  }
  const char* const text = std::getenv("GRPC_XDS_BOOTSTRAP_CONFIG");
  if (text == nullptr || *text == '\0') {
    return bad_bootstrap("there is none: set XdsOptions::bootstrap, GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG");
  }
  return std::string(text);
}

}  // namespace hawser::cluster
