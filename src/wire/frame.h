#pragma once

#include <cstdint>

#include "base/little_endian.h"
#include "hawser/bytes.h"
#include "hawser/error.h"

// The frames of docs/wire-format.md, without I/O. A frame is the head of a message: this fixed header, then
// metadata, then the body; the message's payload carries large pieces and the attachment.
namespace hawser::wire {

inline constexpr std::uint8_t version = 1;

enum class FrameKind : std::uint8_t {
  request = 1,        // Client: begins a call.
  response = 2,       // Server: ends a call with a result.
  error = 3,          // Server: ends a call with an error.
  cancel = 4,         // Client: the answer is not wanted any more; the server still answers once.
  stream_data = 5,    // Either: one item of a call's stream.
  stream_end = 6,     // Either: no more items in this direction.
  stream_credit = 7,  // Either: the receiver has room for so many more bytes.
  ping = 8,           // Either: answer with pong.
  pong = 9,
  goaway = 10,  // Server: send no new calls on this connection. Client: none will come, in answer to that.
};
inline constexpr std::uint8_t kind_min = 1;
inline constexpr std::uint8_t kind_max = 10;

// Bits of Header::flags.
enum Flags : std::uint8_t {
  flag_checksum = 1,    // Header::checksum covers head and payload (CRC32C).
  flag_idempotent = 2,  // Request: may be executed more than once.
};
inline constexpr std::uint8_t flags_known = flag_checksum | flag_idempotent;

// The fixed header, little-endian on the wire in this order, without padding.
struct Header {
  FrameKind kind = FrameKind::request;
  std::uint8_t flags = 0;
  std::uint16_t metadata_bytes = 0;  // Between header and body.
  std::uint32_t call = 0;            // Call id, chosen by the client; 0 on ping, pong and goaway.
  std::uint32_t method = 0;          // Request: method id. Error: ErrorCode, and ErrorScope in bits 16 to 23.
  std::uint32_t signature = 0;       // Request: signature hash. Stream credit: bytes granted. Error: application code.
  std::uint32_t deadline = 0;        // Request: see encode_deadline(); 0 is none.
  std::uint32_t attachment_bytes = 0;  // The last bytes of the payload.
  std::uint32_t checksum = 0;          // With flag_checksum, else 0.

  friend bool operator==(const Header&, const Header&) = default;
};
inline constexpr std::size_t header_bytes = 28;

inline void write_header(std::byte* to, const Header& header) noexcept {
  store_le(to, static_cast<std::uint8_t>(header.kind));
  store_le(to + 1, header.flags);
  store_le(to + 2, header.metadata_bytes);
  store_le(to + 4, header.call);
  store_le(to + 8, header.method);
  store_le(to + 12, header.signature);
  store_le(to + 16, header.deadline);
  store_le(to + 20, header.attachment_bytes);
  store_le(to + 24, header.checksum);
}

// A frame taken apart; views into the message.
struct Frame {
  Header header;
  Bytes metadata;
  Bytes body;
  Bytes payload;  // Without the attachment.
  Bytes attachment;
};

// Takes a message's head and payload apart. `payload_bytes` is the announced size: with select_receive_buffer(), the
// payload is not here yet and `payload` empty. Checks everything that needs no state; an error ends the connection.
Result<Frame> decode_frame(Bytes head, Bytes payload, std::size_t payload_bytes);

// Only the header of a head that decode_frame() accepted before.
Header read_header(Bytes head) noexcept;

// Relative deadlines in 32 bits: below 2^31 microseconds (35 minutes), above in milliseconds with the top bit set.
// Never 0, which stands for none; what lies in the past is 1 microsecond.
std::uint32_t encode_deadline(std::int64_t microseconds) noexcept;
// In microseconds; 0 for none.
std::int64_t decode_deadline(std::uint32_t encoded) noexcept;

// Received codes and scopes. What we do not know, or `ok` where there is an error, says as much as `internal`.
ErrorCode decode_error_code(std::uint32_t number) noexcept;
ErrorScope decode_error_scope(std::uint32_t number) noexcept;

// CRC32C (Castagnoli) over the head with its checksum field taken as zero, then the payload.
std::uint32_t frame_checksum(Bytes head, std::span<const ConstBuffer> payload) noexcept;
// True if the frame carries no checksum or the right one.
bool checksum_matches(Bytes head, Bytes payload) noexcept;

}  // namespace hawser::wire
