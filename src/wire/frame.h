#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/little_endian.h"
#include "hawser/bytes.h"
#include "hawser/error.h"
#include "wire/call_id.h"

// The frames of docs/wire-format.md, without I/O. A frame is the head of a message: a fixed header, then metadata, then
// the body. The message's payload carries large pieces and the attachment.
namespace hawser::wire {

inline constexpr std::uint8_t version = 1;

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
};
inline constexpr std::uint8_t kind_min = 1;
inline constexpr std::uint8_t kind_max = 10;

// Returns a name such as "STREAM_DATA", or "unknown" for a number that is no kind.
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

// ---- Encoding ----

// The fields of the header that do not depend on the kind.
struct Envelope {
  std::uint16_t metadata_bytes = 0;
  bool checksum = false;  // The sender calls write_checksum() when the whole message is complete.
};

namespace detail {

struct Words {
  std::uint32_t word_0 = 0;
  std::uint32_t word_1 = 0;
  std::uint32_t word_2 = 0;
  std::uint32_t attachment_bytes = 0;
};
inline void store_header(std::byte* to, FrameKind kind, const Envelope& envelope, CallId call = {},
                         const Words& words = {}, std::uint8_t flags = 0) noexcept {
  store_le(to + at::kind, static_cast<std::uint8_t>(kind));
  store_le(to + at::flags, static_cast<std::uint8_t>(flags | (envelope.checksum ? flag_checksum : 0)));
  store_le(to + at::metadata_bytes, envelope.metadata_bytes);
  store_le(to + at::call, call.number());
  store_le(to + at::word_0, words.word_0);
  store_le(to + at::word_1, words.word_1);
  store_le(to + at::word_2, words.word_2);
  store_le(to + at::attachment_bytes, words.attachment_bytes);
  store_le(to + at::checksum, std::uint32_t{0});
}

}  // namespace detail

// Writes a header of header_bytes.
inline void encode(std::byte* to, const RequestFrame& frame, const Envelope& envelope = {}) noexcept {
  detail::store_header(to, frame.kind, envelope, frame.call,
                       {frame.method, frame.signature, frame.deadline, frame.attachment_bytes},
                       frame.idempotent ? flag_idempotent : std::uint8_t{0});
}
inline void encode(std::byte* to, const ResponseFrame& frame, const Envelope& envelope = {}) noexcept {
  detail::store_header(to, frame.kind, envelope, frame.call, {.attachment_bytes = frame.attachment_bytes});
}
// The code is in bits 0 to 15 of its word, the scope in bits 16 to 23.
inline void encode(std::byte* to, const ErrorFrame& frame, const Envelope& envelope = {}) noexcept {
  detail::store_header(
      to, frame.kind, envelope, frame.call,
      {.word_0 = static_cast<std::uint32_t>(frame.code) | static_cast<std::uint32_t>(frame.scope) << 16,
       .word_1 = static_cast<std::uint32_t>(frame.application_code)});
}
inline void encode(std::byte* to, const CreditFrame& frame, const Envelope& envelope = {}) noexcept {
  detail::store_header(to, frame.kind, envelope, frame.call, {.word_1 = frame.bytes});
}
// Frames that have a call id and nothing else.
template <class Frame>
  requires(std::same_as<Frame, CancelFrame> || std::same_as<Frame, StreamDataFrame> ||
           std::same_as<Frame, StreamEndFrame>)
void encode(std::byte* to, const Frame& frame, const Envelope& envelope = {}) noexcept {
  detail::store_header(to, frame.kind, envelope, frame.call);
}
// Frames that belong to no call.
template <class Frame>
  requires(std::same_as<Frame, PingFrame> || std::same_as<Frame, PongFrame> || std::same_as<Frame, GoawayFrame>)
void encode(std::byte* to, const Frame& frame, const Envelope& envelope = {}) noexcept {
  detail::store_header(to, frame.kind, envelope);
}

// Fills the checksum field of a frame that was encoded with Envelope::checksum.
void write_checksum(MutableBytes head, std::span<const ConstBuffer> payload) noexcept;

// ---- Decoding ----

// A received frame whose form has been checked, as views into the message. visit() reads its fields.
struct Frame {
  const std::byte* header = nullptr;
  FrameKind kind = FrameKind::request;  // Always a known kind.
  Bytes metadata = {};
  Bytes body = {};
  Bytes payload = {};  // The attachment is not part of it.
  Bytes attachment = {};

  // The id has no meaning in PING, PONG and GOAWAY.
  CallId call() const noexcept { return CallId::from_number(load_le<std::uint32_t>(header + at::call)); }
};

// Finds the parts of a message. `payload_bytes` is the announced size: before the payload has been received, `payload`
// is empty. Checks everything that needs no state; an error ends the connection.
Result<Frame> decode_frame(Bytes head, Bytes payload, std::size_t payload_bytes);
// Decodes a head of which only the beginning was kept: only `header`, `kind` and `call()` are valid.
Result<Frame> decode_cut_frame(Bytes head);

// Returns true if the frame carries no checksum or the right one. `head` is the head of a decoded frame.
bool checksum_matches(Bytes head, Bytes payload) noexcept;

namespace detail {

inline std::uint32_t word(const Frame& frame, std::size_t offset) noexcept {
  return load_le<std::uint32_t>(frame.header + offset);
}

}  // namespace detail

// Calls `visitor` with the frame of `frame.kind`, such as a RequestFrame, and returns the visitor's result.
template <class Visitor>
decltype(auto) visit(const Frame& frame, Visitor&& visitor) {
  using detail::word;
  switch (frame.kind) {
    case FrameKind::request:
      return visitor(
          RequestFrame{.call = frame.call(),
                       .method = word(frame, at::word_0),
                       .signature = word(frame, at::word_1),
                       .deadline = word(frame, at::word_2),
                       .attachment_bytes = word(frame, at::attachment_bytes),
                       .idempotent = (load_le<std::uint8_t>(frame.header + at::flags) & flag_idempotent) != 0});
    case FrameKind::response:
      return visitor(ResponseFrame{.call = frame.call(), .attachment_bytes = word(frame, at::attachment_bytes)});
    case FrameKind::error:
      return visitor(ErrorFrame{.call = frame.call(),
                                .code = decode_error_code(word(frame, at::word_0) & 0xffffU),
                                .scope = decode_error_scope(word(frame, at::word_0) >> 16 & 0xffU),
                                .application_code = static_cast<std::int32_t>(word(frame, at::word_1))});
    case FrameKind::cancel: return visitor(CancelFrame{.call = frame.call()});
    case FrameKind::stream_data: return visitor(StreamDataFrame{.call = frame.call()});
    case FrameKind::stream_end: return visitor(StreamEndFrame{.call = frame.call()});
    case FrameKind::stream_credit: return visitor(CreditFrame{.call = frame.call(), .bytes = word(frame, at::word_1)});
    case FrameKind::ping: return visitor(PingFrame{});
    case FrameKind::pong: return visitor(PongFrame{});
    case FrameKind::goaway: break;
  }
  return visitor(GoawayFrame{});
}

// A visitor that is made of functions, each for one or more kinds.
template <class... Functions>
struct Visitor : Functions... {
  using Functions::operator()...;
};

}  // namespace hawser::wire
