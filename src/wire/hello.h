#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "wire/frame.h"
#include "wire/message.h"

namespace hawser::wire {

// A transport's name, with an offer, a pending connection's parameters, or the reason why the transport is declined.
struct NamedBytes {
  std::string name;
  std::vector<std::byte> bytes;

  friend bool operator==(const NamedBytes&, const NamedBytes&) = default;
};

// The first message of each side: its versions, requests and limits. See docs/wire-format.md, "Hello". While a
// transport beside the stream is negotiated, each side sends further hellos, of which only the fields of "Paths" count.
struct Hello {
  std::uint8_t version_min = 1;
  std::uint8_t version_max = 1;           // The server answers with the one version that it chose, in both fields.
  bool checksum = false;                  // Client: requests it. Server: grants it.
  bool memory = false;                    // This side serves MEMORY frames.
  std::uint32_t message_bytes_max = 0;    // The longest message that this side receives.
  std::uint32_t calls_max = 0;            // Server: maximum of calls in flight on the connection.
  std::uint32_t stream_window_bytes = 0;  // Window that this side grants to each stream at its start.
  std::optional<Error> refusal = {};      // Server: why it refuses the connection; it closes the stream afterwards.

  // Transports (transport/transport.h).
  std::vector<NamedBytes> offers = {};                // Client: the transports that it offers.
  std::optional<NamedBytes> selection = {};           // Server: the transport to try, with its pending connection's
                                                      // parameters.
  std::vector<NamedBytes> declined = {};              // Server: the transports that it declines, with the reasons.
  std::optional<std::vector<std::byte>> answer = {};  // Client: the parameters of its pending connection.
  std::optional<std::string> unanswered = {};         // Client: why it has no pending connection for the selection.
  bool ready = false;                                 // Server: both pending connections are connected.
  // transport::PathProtection of a path: what the client demands, and what the server answers. 0: none.
  std::uint8_t protection = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
};

// The shortest message: a frame without metadata and body. message_bytes_max of either side must allow it.
inline constexpr std::size_t message_bytes_least = MessagePrefix::bytes + header_bytes;

inline constexpr std::size_t hello_prefix_bytes = 8;
inline constexpr std::size_t hello_body_bytes_max = 4096;
inline constexpr std::size_t refusal_text_bytes_max = 1024;
inline constexpr std::size_t transport_name_bytes_max = 16;
inline constexpr std::size_t transport_offer_bytes_max = 512;
inline constexpr std::size_t transport_parameters_bytes_max = 2048;
inline constexpr std::size_t transport_reason_bytes_max = 200;  // Longer reasons are cut.
inline constexpr std::size_t transports_max = 4;  // Limit of the offers of one hello, and of its declined transports.

// Encodes at most transports_max offers and declined transports. Names and bytes must keep their limits.
std::vector<std::byte> encode_hello(const Hello& hello);

// Returns true if the first bytes are those of a hello, and not of another protocol. With fewer than four bytes: if
// they can be.
bool is_hello(Bytes first) noexcept;
// Returns the number of bytes that follow the prefix. `prefix` has hello_prefix_bytes.
Result<std::size_t> hello_body_bytes(Bytes prefix);
// `whole` is prefix and body. Unknown fields are ignored; contradictory fields are an error.
Result<Hello> decode_hello(Bytes whole);
// Returns an error if a server must not send `hello` as its first hello without a refusal.
Result<void> check_server_hello(const Hello& hello);

}  // namespace hawser::wire
