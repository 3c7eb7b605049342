#include "cluster/xds/xds_messages.h"

#include "base/try.h"

namespace hawser::cluster {
namespace {

constexpr std::uint64_t invalid_argument_status = 3;
constexpr std::size_t refusal_bytes_max = 1024;
// Limits of what is kept of an answer and sent back.
constexpr std::size_t version_bytes_max = 4096;
constexpr std::size_t resources_max = 100'000;

}  // namespace

using protocol::grpc::add_bytes_field;
using protocol::grpc::add_number_field;
using protocol::grpc::ProtoField;

std::string discovery_request(const XdsRequest& request) {
  std::string message;
  if (!request.version.empty()) add_bytes_field(message, 1, request.version);
  if (!request.node.empty()) add_bytes_field(message, 2, request.node);
  for (const std::string_view name : request.names) add_bytes_field(message, 3, name);
  add_bytes_field(message, 4, "type.googleapis.com/" + std::string(xds_types[static_cast<std::size_t>(request.kind)]));
  if (!request.nonce.empty()) add_bytes_field(message, 5, request.nonce);
  if (!request.refusal.empty()) {
    std::string status;
    add_number_field(status, 1, invalid_argument_status);
    add_bytes_field(status, 2, request.refusal.substr(0, refusal_bytes_max));
    add_bytes_field(message, 6, status);
  }
  return message;
}

Result<XdsResponse> read_discovery_response(std::string_view response) {
  XdsResponse read;
  TRY(read_fields(response, [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1: read.version = field.bytes; break;
      case 2:
        if (read.resources.size() == resources_max) {
          return refuse_resource("an answer has more than " + std::to_string(resources_max) + " resources");
        }
        read.resources.push_back(field.bytes);
        break;
      case 4: read.type = field.bytes; break;
      case 5: read.nonce = field.bytes; break;
      default: break;
    }
    return {};
  }));
  if (read.version.size() > version_bytes_max || read.nonce.size() > version_bytes_max) {
    return refuse_resource("the version or the nonce of an answer has more than " + std::to_string(version_bytes_max) +
                           " bytes");
  }
  constexpr std::string_view prefix = "type.googleapis.com/";
  if (read.type.starts_with(prefix)) read.type.remove_prefix(prefix.size());
  return read;
}

}  // namespace hawser::cluster
