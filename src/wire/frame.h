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
#include "wire/frame_kind.h"

// The frames of docs/wire-format.md, without I/O. A frame is the head of a message: a fixed header, then metadata, then
// the body. The message's payload carries large pieces and the attachment.
namespace hawser::wire {

inline constexpr std::uint8_t version = 1;

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
// The action is in bits 0 to 7 of its word, the wish for a CRC in bit 8.
inline void encode(std::byte* to, const MemoryFrame& frame, const Envelope& envelope = {}) noexcept {
  detail::store_header(to, frame.kind, envelope, frame.call,
                       {.word_0 = (frame.action & 0xffU) | (frame.wants_crc ? 0x100U : 0U)});
}
inline void encode(std::byte* to, const MemoryReplyFrame& frame, const Envelope& envelope = {}) noexcept {
  detail::store_header(to, frame.kind, envelope, frame.call,
                       {.word_0 = static_cast<std::uint32_t>(frame.code), .word_1 = frame.crc});
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
inline Result<Frame> decode_frame(Bytes head, Bytes payload, std::size_t payload_bytes);
// Decodes a head of which only the beginning was kept: only `header`, `kind` and `call()` are valid.
Result<Frame> decode_cut_frame(Bytes head);

// Returns true if the frame carries no checksum or the right one. `head` is the head of a decoded frame.
bool checksum_matches(Bytes head, Bytes payload) noexcept;

namespace detail {

constexpr bool known(std::uint8_t kind) noexcept { return kind >= kind_min && kind <= kind_max; }

// The kinds whose messages may have a payload, as bits.
inline constexpr std::uint32_t payload_kinds =
    1U << static_cast<unsigned>(FrameKind::request) | 1U << static_cast<unsigned>(FrameKind::response) |
    1U << static_cast<unsigned>(FrameKind::stream_data) | 1U << static_cast<unsigned>(FrameKind::memory) |
    1U << static_cast<unsigned>(FrameKind::memory_reply);

// The fields of a header that decide about the form of its frame. `head` has at least header_bytes.
struct HeaderForm {
  explicit HeaderForm(Bytes head) noexcept
      : kind(load_le<std::uint8_t>(head.data() + at::kind)),
        flags(load_le<std::uint8_t>(head.data() + at::flags)),
        metadata_bytes(load_le<std::uint16_t>(head.data() + at::metadata_bytes)),
        attachment_bytes(load_le<std::uint32_t>(head.data() + at::attachment_bytes)) {}
  bool fits(std::size_t head_bytes, std::size_t payload_bytes) const noexcept {
    return known(kind) && (flags & ~flags_known) == 0 && header_bytes + metadata_bytes <= head_bytes &&
           attachment_bytes <= payload_bytes && (payload_bytes == 0 || (payload_kinds >> kind & 1U) != 0);
  }

  std::uint8_t kind;
  std::uint8_t flags;
  std::size_t metadata_bytes;
  std::size_t attachment_bytes;
};

// Why a frame does not have the form of one.
[[gnu::cold]] std::unexpected<Error> malformed(Bytes head, std::size_t payload_bytes);

inline std::uint32_t word(const Frame& frame, std::size_t offset) noexcept {
  return load_le<std::uint32_t>(frame.header + offset);
}

}  // namespace detail

// The result is filled in place: this function is on the path of every message.
inline Result<Frame> decode_frame(Bytes head, Bytes payload, std::size_t payload_bytes) {
  if (head.size() < header_bytes) [[unlikely]]
    return detail::malformed(head, payload_bytes);
  const detail::HeaderForm form(head);
  if (!form.fits(head.size(), payload_bytes)) [[unlikely]]
    return detail::malformed(head, payload_bytes);
  Result<Frame> result(std::in_place);
  result->header = head.data();
  result->kind = static_cast<FrameKind>(form.kind);
  result->metadata = head.subspan(header_bytes, form.metadata_bytes);
  result->body = head.subspan(header_bytes + form.metadata_bytes);
  if (!payload.empty()) {
    result->payload = payload.first(payload.size() - form.attachment_bytes);
    result->attachment = payload.last(form.attachment_bytes);
  }
  return result;
}

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
    case FrameKind::memory:
      return visitor(MemoryFrame{.call = frame.call(),
                                 .action = word(frame, at::word_0) & 0xffU,
                                 .wants_crc = (word(frame, at::word_0) & 0x100U) != 0});
    case FrameKind::memory_reply: {
      const std::uint32_t code = word(frame, at::word_0) & 0xffffU;
      return visitor(MemoryReplyFrame{.call = frame.call(),
                                      .code = code == 0 ? ErrorCode::ok : decode_error_code(code),
                                      .crc = word(frame, at::word_1)});
    }
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
