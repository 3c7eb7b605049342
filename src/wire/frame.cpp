#include "wire/frame.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/crc32c.h"

namespace hawser::wire {
namespace {

constexpr std::size_t checksum_at = 24;

std::unexpected<Error> protocol_error(std::string text) {
  return fail(ErrorCode::protocol_error, std::move(text), ErrorScope::connection, Initiator::peer);
}

}  // namespace

Header read_header(Bytes head) noexcept {
  const std::byte* const from = head.data();
  return {.kind = static_cast<FrameKind>(load_le<std::uint8_t>(from)),
          .flags = load_le<std::uint8_t>(from + 1),
          .metadata_bytes = load_le<std::uint16_t>(from + 2),
          .call = load_le<std::uint32_t>(from + 4),
          .method = load_le<std::uint32_t>(from + 8),
          .signature = load_le<std::uint32_t>(from + 12),
          .deadline = load_le<std::uint32_t>(from + 16),
          .attachment_bytes = load_le<std::uint32_t>(from + 20),
          .checksum = load_le<std::uint32_t>(from + 24)};
}

// Filled in place: this is on the path of every message.
Result<Frame> decode_frame(Bytes head, Bytes payload, std::size_t payload_bytes) {
  Result<Frame> result(std::in_place);
  if (head.size() < header_bytes) [[unlikely]] {
    result = protocol_error("a frame of " + std::to_string(head.size()) + " bytes is shorter than its header (" +
                            std::to_string(header_bytes) + ")");
    return result;
  }
  Frame& frame = *result;
  frame.header = read_header(head);
  const Header& header = frame.header;
  const auto kind = static_cast<std::uint8_t>(header.kind);
  const std::size_t body_at = header_bytes + header.metadata_bytes;
  const bool carries_payload =
      header.kind == FrameKind::request || header.kind == FrameKind::response || header.kind == FrameKind::stream_data;
  if (kind < kind_min || kind > kind_max) [[unlikely]] {
    result = protocol_error("unknown frame kind " + std::to_string(kind));
  } else if ((header.flags & ~flags_known) != 0) [[unlikely]] {
    result = protocol_error("unknown frame flags " + std::to_string(header.flags & ~flags_known));
  } else if (body_at > head.size()) [[unlikely]] {
    result =
        protocol_error("metadata of " + std::to_string(header.metadata_bytes) + " bytes passes the end of the frame");
  } else if (header.attachment_bytes > payload_bytes) [[unlikely]] {
    result = protocol_error("an attachment of " + std::to_string(header.attachment_bytes) +
                            " bytes is larger than the payload (" + std::to_string(payload_bytes) + ")");
  } else if (payload_bytes != 0 && !carries_payload) [[unlikely]] {
    result = protocol_error("a frame of kind " + std::to_string(kind) + " has no payload");
  } else {
    frame.metadata = head.subspan(header_bytes, header.metadata_bytes);
    frame.body = head.subspan(body_at);
    if (!payload.empty()) {
      frame.payload = payload.first(payload.size() - header.attachment_bytes);
      frame.attachment = payload.last(header.attachment_bytes);
    }
  }
  return result;
}

std::uint32_t encode_deadline(std::int64_t microseconds) noexcept {
  constexpr std::int64_t top = std::int64_t{1} << 31;
  if (microseconds < 1) return 1;
  if (microseconds < top) return static_cast<std::uint32_t>(microseconds);
  // Rounded up, so that the peer does not give up before we do.
  return static_cast<std::uint32_t>(std::min((microseconds - 1) / 1000 + 1, top - 1) | top);
}

std::int64_t decode_deadline(std::uint32_t encoded) noexcept {
  constexpr std::uint32_t top = 1U << 31;
  return (encoded & top) != 0 ? std::int64_t{encoded & ~top} * 1000 : std::int64_t{encoded};
}

ErrorCode decode_error_code(std::uint32_t number) noexcept {
  constexpr auto last = static_cast<std::uint32_t>(ErrorCode::internal);
  return number == 0 || number > last ? ErrorCode::internal : static_cast<ErrorCode>(number);
}

ErrorScope decode_error_scope(std::uint32_t number) noexcept {
  constexpr auto last = static_cast<std::uint32_t>(ErrorScope::transport);
  return number > last ? ErrorScope::call : static_cast<ErrorScope>(number);
}

std::uint32_t frame_checksum(Bytes head, std::span<const ConstBuffer> payload) noexcept {
  constexpr std::array<std::byte, 4> zero{};
  std::uint32_t crc = crc32c(0, head.first(checksum_at));
  crc = crc32c(crc, zero);
  crc = crc32c(crc, head.subspan(checksum_at + zero.size()));
  for (const ConstBuffer& piece : payload) crc = crc32c(crc, {piece.data, piece.size});
  return crc;
}

bool checksum_matches(Bytes head, Bytes payload) noexcept {
  const Header header = read_header(head);
  if ((header.flags & flag_checksum) == 0) return true;
  const ConstBuffer piece{payload.data(), payload.size()};
  return frame_checksum(head, std::span(&piece, payload.empty() ? 0U : 1U)) == header.checksum;
}

}  // namespace hawser::wire
