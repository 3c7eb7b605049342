#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::wire {

// The first thing that each side sends: what it speaks, wants and bears. docs/wire-format.md, "Hello".
struct Hello {
  std::uint8_t version_least = 1;
  std::uint8_t version_most = 1;          // The server answers with the one version that it chose in both.
  bool checksum = false;                  // Client: wants it. Server: grants it.
  std::uint32_t message_bytes_max = 0;    // The longest message that this side receives.
  std::uint32_t calls_max = 0;            // Server: calls in flight that it allows on the connection.
  std::uint32_t stream_window_bytes = 0;  // What this side grants to each stream at its start.
  std::optional<Error> refusal = {};      // Server: why there is no connection; it closes afterwards.

  friend bool operator==(const Hello&, const Hello&) = default;
};

inline constexpr std::size_t hello_prefix_bytes = 8;
inline constexpr std::size_t hello_body_bytes_max = 4096;
inline constexpr std::size_t refusal_text_bytes_max = 1024;

std::vector<std::byte> encode_hello(const Hello& hello);

// True if the first bytes (at least four) are those of a hello, and not of another protocol.
bool is_hello(Bytes first) noexcept;
// The bytes that follow the prefix, which has hello_prefix_bytes.
Result<std::size_t> hello_body_bytes(Bytes prefix);
// `whole` is prefix and body. Unknown fields are ignored; a body that contradicts itself is an error.
Result<Hello> decode_hello(Bytes whole);

}  // namespace hawser::wire
