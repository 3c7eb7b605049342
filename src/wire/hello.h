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

// A transport by its name, with an offer, a pending connection's parameters, or the reason why it is not taken.
struct NamedBytes {
  std::string name;
  std::vector<std::byte> bytes;

  friend bool operator==(const NamedBytes&, const NamedBytes&) = default;
};

// The first thing that each side sends: what it speaks, wants and bears. docs/wire-format.md, "Hello". While a
// transport beside the stream is agreed on, each side sends more of them, of which only the fields of "Paths" count.
struct Hello {
  std::uint8_t version_min = 1;
  std::uint8_t version_max = 1;           // The server answers with the one version that it chose in both.
  bool checksum = false;                  // Client: wants it. Server: grants it.
  std::uint32_t message_bytes_max = 0;    // The longest message that this side receives.
  std::uint32_t calls_max = 0;            // Server: calls in flight that it allows on the connection.
  std::uint32_t stream_window_bytes = 0;  // What this side grants to each stream at its start.
  std::optional<Error> refusal = {};      // Server: why there is no connection; it closes afterwards.

  // Transports (transport/transport.h).
  std::vector<NamedBytes> offers = {};                // Client: the transports that it would take.
  std::optional<NamedBytes> selection = {};           // Server: the transport to try, with its pending connection's
                                                      // parameters.
  std::vector<NamedBytes> declined = {};              // Server: the transports that it does not take, with the reasons.
  std::optional<std::vector<std::byte>> answer = {};  // Client: the parameters of its pending connection.
  std::optional<std::string> unanswered = {};         // Client: why it has no pending connection for the selection.
  bool ready = false;                                 // Server: both pending connections are connected.

  friend bool operator==(const Hello&, const Hello&) = default;
};

// The shortest message, which either side's message_bytes_max must allow: a frame without metadata and body.
inline constexpr std::size_t message_bytes_least = MessagePrefix::bytes + header_bytes;

inline constexpr std::size_t hello_prefix_bytes = 8;
inline constexpr std::size_t hello_body_bytes_max = 4096;
inline constexpr std::size_t refusal_text_bytes_max = 1024;
inline constexpr std::size_t transport_name_bytes_max = 16;
inline constexpr std::size_t transport_offer_bytes_max = 512;
inline constexpr std::size_t transport_parameters_bytes_max = 2048;
inline constexpr std::size_t transport_reason_bytes_max = 200;  // Longer reasons are cut.
inline constexpr std::size_t transports_max = 4;                // Offers, and as many declined, of one hello.

// At most transports_max offers and declined count; names and bytes must keep their bounds.
std::vector<std::byte> encode_hello(const Hello& hello);

// True if the first bytes (at least four) are those of a hello, and not of another protocol.
bool is_hello(Bytes first) noexcept;
// The bytes that follow the prefix, which has hello_prefix_bytes.
Result<std::size_t> hello_body_bytes(Bytes prefix);
// `whole` is prefix and body. Unknown fields are ignored; a body that contradicts itself is an error.
Result<Hello> decode_hello(Bytes whole);
// An error if a server without a refusal must not send `hello` as its first one.
Result<void> check_server_hello(const Hello& hello);

}  // namespace hawser::wire
