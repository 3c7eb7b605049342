#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/little_endian.h"
#include "hawser/bytes.h"
#include "hawser/error.h"

// The lengths of a message and their limit, without I/O: docs/wire-format.md, "Messages on a byte stream".
namespace hawser::wire {

// On a byte stream, a prefix precedes each message.
struct MessagePrefix {
  static constexpr std::size_t bytes = 8;
  std::uint32_t head_bytes = 0;
  std::uint32_t payload_bytes = 0;

  // `from` must have at least MessagePrefix::bytes.
  static MessagePrefix decode(const std::byte* from) noexcept {
    return {load_le<std::uint32_t>(from), load_le<std::uint32_t>(from + 4)};
  }
  // Returns the length of the whole message. The sum does not overflow, whatever the peer announces.
  constexpr std::size_t message_bytes() const noexcept { return bytes + head_bytes + payload_bytes; }
  friend bool operator==(const MessagePrefix&, const MessagePrefix&) = default;
};
static_assert(sizeof(std::size_t) == 8, "the lengths of a message are added without a check for overflow");

inline void encode(std::byte* to, const MessagePrefix& prefix) noexcept {
  store_le(to, prefix.head_bytes);
  store_le(to + 4, prefix.payload_bytes);
}

// The limit of received messages: the option message_bytes_max of this side. Every transport checks each message here,
// from its announced lengths, before it takes memory for it.
class MessageLimit {
 public:
  // `bytes_max` counts prefix, head and payload. Transports without a prefix count it too, so that every transport
  // carries the same messages.
  explicit constexpr MessageLimit(std::size_t bytes_max) noexcept : bytes_max_(bytes_max) {}
  // `bytes_max` counts head and payload.
  static constexpr MessageLimit without_prefix(std::size_t bytes_max) noexcept {
    return MessageLimit(MessagePrefix::bytes + bytes_max);
  }

  constexpr std::size_t bytes_max() const noexcept { return bytes_max_; }
  constexpr bool allows(const MessagePrefix& message) const noexcept { return message.message_bytes() <= bytes_max_; }
  // Returns the error that ends the connection because of a message that is not allowed.
  Error exceeded_by(const MessagePrefix& message) const;

 private:
  std::size_t bytes_max_;
};
// Returns the same text for a message that is not sent. Its length may exceed the range of a prefix.
std::string too_long_text(std::size_t message_bytes, std::size_t bytes_max);

// The first prefix in `received`, which are the bytes of a stream after the end of the last message.
struct ParsedPrefix {
  enum class State : std::uint8_t {
    incomplete,  // Fewer bytes than a prefix has.
    too_long,    // The message exceeds the limit.
    complete,
  };
  State state = State::incomplete;
  MessagePrefix prefix = {};  // Valid unless the state is incomplete.
};
inline ParsedPrefix parse_prefix(Bytes received, MessageLimit limit) noexcept {
  if (received.size() < MessagePrefix::bytes) return {};
  const MessagePrefix prefix = MessagePrefix::decode(received.data());
  return {limit.allows(prefix) ? ParsedPrefix::State::complete : ParsedPrefix::State::too_long, prefix};
}

}  // namespace hawser::wire
