#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "negotiate/messages.h"
#include "transport/path_proof.h"
#include "wire/message.h"

namespace hawser::negotiate {

// The settings of one side of a connection, which follow from the terms of both sides.
struct Agreement {
  bool checksum = false;                // Frames have checksums.
  bool peer_memory = false;             // The peer serves MEMORY frames.
  std::size_t send_bytes_max = 0;       // The longest message that this side sends, head and payload.
  std::size_t receive_bytes_max = 0;    // The longest message that this side receives, head and payload.
  std::size_t calls_max = 0;            // The most calls in flight on the connection.
  std::uint32_t peer_window_bytes = 0;  // The peer's grant to each of our streams at its start.
  std::uint32_t own_window_bytes = 0;   // Our grant to each of the peer's streams at its start.
  std::uint8_t protection = 0;          // transport::PathProtection of a path. 0: not within TLS.

  // The messages on a path are signed or sealed.
  bool protects_messages() const noexcept {
    return protection > static_cast<std::uint8_t>(transport::PathProtection::authenticated);
  }
  // The same when a path carries the messages, whose protection takes a part of each.
  Agreement on_path() const noexcept;

  friend bool operator==(const Agreement&, const Agreement&) = default;
};

// The bytes that signing or sealing adds to a message, and the length of the first message of a protected path.
inline constexpr std::size_t protection_bytes = 64;
inline constexpr std::size_t proof_message_bytes = 8 + transport::PathProof::bytes;
// The least message_bytes_max of both sides that a protected path needs.
inline constexpr std::size_t protected_message_bytes_min =
    wire::MessagePrefix::bytes + proof_message_bytes + protection_bytes;

// `ours` and `theirs` have at least wire::message_bytes_least as message_bytes_max. Both sides get the same checksum,
// limits in opposite directions, and the higher protection of both.
Agreement settle(const Terms& ours, const Terms& theirs) noexcept;

// Why a server within TLS declines every path to a client with the terms `client`; empty if it does not. A literal.
std::string_view path_refusal_of_server(const Terms& server, const Terms& client) noexcept;
// Why a client within TLS declines a path that a server with the terms `server` selected; empty if it does not.
std::string path_refusal_of_client(const Terms& client, const Terms& server);

}  // namespace hawser::negotiate
