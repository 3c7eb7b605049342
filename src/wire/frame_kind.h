#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "hawser/error.h"
#include "wire/call_id.h"

// The kinds of frames, and the fields of each kind's header.
namespace hawser::wire {

enum class FrameKind : std::uint8_t {
  request = 1,
  response = 2,
  error = 3,
  cancel = 4,
  stream_data = 5,
  stream_end = 6,
  stream_credit = 7,
  ping = 8,
  pong = 9,
  goaway = 10,
  memory = 11,
  memory_reply = 12,
};
inline constexpr std::uint8_t kind_min = 1;
inline constexpr std::uint8_t kind_max = 12;

// Returns a name such as "STREAM_DATA", or "unknown" for a number that is not a kind.
std::string_view to_string(FrameKind kind) noexcept;

inline constexpr std::uint8_t flag_checksum = 1;    // The checksum (CRC32C) covers head and payload.
inline constexpr std::uint8_t flag_idempotent = 2;  // REQUEST: the call may be executed more than once.
inline constexpr std::uint8_t flags_known = flag_checksum | flag_idempotent;

// Offsets of the header's fields, which are little-endian. The meaning of `word_0` to `word_2` depends on the kind.
namespace at {
inline constexpr std::size_t kind = 0;
inline constexpr std::size_t flags = 1;
inline constexpr std::size_t metadata_bytes = 2;  // u16.
inline constexpr std::size_t call = 4;            // u32, as the following.
inline constexpr std::size_t word_0 = 8;
inline constexpr std::size_t word_1 = 12;
inline constexpr std::size_t word_2 = 16;
inline constexpr std::size_t attachment_bytes = 20;
inline constexpr std::size_t checksum = 24;
}  // namespace at
inline constexpr std::size_t header_bytes = 28;

// Relative deadlines in 32 bits: below 2^31 microseconds (35 minutes), above in milliseconds, rounded up, with the top
// bit set. Never 0, which stands for none; a deadline in the past is 1 microsecond.
constexpr std::uint32_t encode_deadline(std::int64_t microseconds) noexcept {
  constexpr std::int64_t top = std::int64_t{1} << 31;
  if (microseconds < 1) return 1;
  if (microseconds < top) return static_cast<std::uint32_t>(microseconds);
  return static_cast<std::uint32_t>(std::min((microseconds - 1) / 1000 + 1, top - 1) | top);
}
// Returns microseconds; 0 means no deadline.
constexpr std::int64_t decode_deadline(std::uint32_t encoded) noexcept {
  constexpr std::uint32_t top = 1U << 31;
  return (encoded & top) != 0 ? std::int64_t{encoded & ~top} * 1000 : std::int64_t{encoded};
}

// Converts received codes and scopes. An unknown code, or `ok` in an error, becomes `internal`; an unknown scope
// becomes `call`.
ErrorCode decode_error_code(std::uint32_t number) noexcept;
ErrorScope decode_error_scope(std::uint32_t number) noexcept;

// ---- Frames: what is in the header of each kind ----

// Client: begins a call. Body and payload contain the arguments.
struct RequestFrame {
  static constexpr FrameKind kind = FrameKind::request;
  CallId call = {};
  std::uint32_t method = 0;
  std::uint32_t signature = 0;
  std::uint32_t deadline = 0;          // See encode_deadline(); 0 means none.
  std::uint32_t attachment_bytes = 0;  // The last bytes of the payload.
  bool idempotent = false;             // The call may be executed more than once.
  friend bool operator==(const RequestFrame&, const RequestFrame&) = default;
};

// Server: ends a call with a result, in body and payload.
struct ResponseFrame {
  static constexpr FrameKind kind = FrameKind::response;
  CallId call = {};
  std::uint32_t attachment_bytes = 0;  // The last bytes of the payload.
  friend bool operator==(const ResponseFrame&, const ResponseFrame&) = default;
};

// Server: ends a call with an error. The body is the error's text.
struct ErrorFrame {
  static constexpr FrameKind kind = FrameKind::error;
  CallId call = {};
  ErrorCode code = ErrorCode::internal;
  ErrorScope scope = ErrorScope::call;
  std::int32_t application_code = 0;
  friend bool operator==(const ErrorFrame&, const ErrorFrame&) = default;
};

// Client: does not need the answer any more. The server still answers exactly once.
struct CancelFrame {
  static constexpr FrameKind kind = FrameKind::cancel;
  CallId call = {};
  friend bool operator==(const CancelFrame&, const CancelFrame&) = default;
};

// Either side: sends one item of a call's stream, in body and payload.
struct StreamDataFrame {
  static constexpr FrameKind kind = FrameKind::stream_data;
  CallId call = {};
  friend bool operator==(const StreamDataFrame&, const StreamDataFrame&) = default;
};

// Either side: sends no more items on the call's stream.
struct StreamEndFrame {
  static constexpr FrameKind kind = FrameKind::stream_end;
  CallId call = {};
  friend bool operator==(const StreamEndFrame&, const StreamEndFrame&) = default;
};

// Either side: grants the peer more bytes on the call's stream.
struct CreditFrame {
  static constexpr FrameKind kind = FrameKind::stream_credit;
  CallId call = {};
  std::uint32_t bytes = 0;
  friend bool operator==(const CreditFrame&, const CreditFrame&) = default;
};

// Either side: asks for a PONG. Only the length of a body of PING or PONG has a meaning.
struct PingFrame {
  static constexpr FrameKind kind = FrameKind::ping;
  friend bool operator==(const PingFrame&, const PingFrame&) = default;
};

struct PongFrame {
  static constexpr FrameKind kind = FrameKind::pong;
  friend bool operator==(const PongFrame&, const PongFrame&) = default;
};

// Server: accepts no new calls on this connection. Client: confirms that it sends no further request.
struct GoawayFrame {
  static constexpr FrameKind kind = FrameKind::goaway;
  friend bool operator==(const GoawayFrame&, const GoawayFrame&) = default;
};

// Operations on exposed memory.
enum class MemoryAction : std::uint8_t { read = 0, write = 1, compare_and_swap = 2, fetch_add = 3 };
inline constexpr std::uint32_t memory_action_max = 3;

// Either side: reads or changes memory that the receiver has exposed. The body is in wire/memory_body.h. The payload of
// a write is the bytes to be written.
struct MemoryFrame {
  static constexpr FrameKind kind = FrameKind::memory;
  CallId call = {};          // Chosen by the sender, for the reply.
  std::uint32_t action = 0;  // A MemoryAction, or a number that this side does not know.
  bool wants_crc = false;    // The reply to a read has a CRC32C of its payload.
  friend bool operator==(const MemoryFrame&, const MemoryFrame&) = default;
};

// Either side: answers a MEMORY frame. The payload is the bytes read. The body is the previous value of an atomic, or
// the text of an error.
struct MemoryReplyFrame {
  static constexpr FrameKind kind = FrameKind::memory_reply;
  CallId call = {};
  ErrorCode code = ErrorCode::ok;
  std::uint32_t crc = 0;
  friend bool operator==(const MemoryReplyFrame&, const MemoryReplyFrame&) = default;
};

}  // namespace hawser::wire
