#include "negotiate/settle.h"

#include <algorithm>

namespace hawser::negotiate {
namespace {

static_assert(protected_message_bytes_min == 112, "the texts below and docs/wire-format.md name this number");

std::string_view refusal_of_short_messages(const Terms& ours, const Terms& theirs) noexcept {
  if (std::min(ours.message_bytes_max, theirs.message_bytes_max) >= protected_message_bytes_min) return {};
  return "message_bytes_max of one side is less than 112 bytes, which a protected path needs: raise it";
}

std::string protection_name(std::uint8_t protection) {
  return std::string(to_string(static_cast<transport::PathProtection>(protection)));
}

std::uint8_t settled_protection(std::uint8_t ours, std::uint8_t theirs) noexcept {
  if (ours == 0 || !transport::known(theirs)) return ours;
  return std::max(ours, theirs);
}

}  // namespace

Agreement settle(const Terms& ours, const Terms& theirs) noexcept {
  constexpr std::size_t prefix = wire::MessagePrefix::bytes;
  return {.checksum = ours.checksum && theirs.checksum,
          .peer_memory = theirs.memory,
          .send_bytes_max = std::min(ours.message_bytes_max, theirs.message_bytes_max) - prefix,
          .receive_bytes_max = ours.message_bytes_max - prefix,
          .calls_max = std::min(ours.calls_max, theirs.calls_max),
          .peer_window_bytes = theirs.stream_window_bytes,
          .own_window_bytes = ours.stream_window_bytes,
          .protection = settled_protection(ours.protection, theirs.protection)};
}

Agreement Agreement::on_path() const noexcept {
  Agreement agreed = *this;
  if (protects_messages()) agreed.send_bytes_max -= protection_bytes;
  return agreed;
}

std::string_view path_refusal_of_server(const Terms& server, const Terms& client) noexcept {
  if (client.protection == 0) return "the client does not prove that it agreed on the path: update it";
  if (!transport::known(client.protection)) {
    return "the client demands a protection of paths that this server does not know: update the server";
  }
  return refusal_of_short_messages(server, client);
}

std::string path_refusal_of_client(const Terms& client, const Terms& server) {
  if (server.protection == 0) return "the server does not prove that it agreed on the path: update it";
  if (!transport::known(server.protection)) {
    return "the server demands a protection of paths that is not known here: update it";
  }
  if (server.protection < client.protection) {
    return "the server offers " + protection_name(server.protection) +
           " messages on the path, and TlsClientOptions::protection demands " + protection_name(client.protection) +
           " ones: update the server";
  }
  return std::string(refusal_of_short_messages(client, server));
}

}  // namespace hawser::negotiate
