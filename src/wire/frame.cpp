#include "wire/frame.h"

#include <array>
#include <string>

#include "hawser/crc32c.h"

namespace hawser::wire {
namespace {

constexpr std::array<std::string_view, kind_max + 1> names = {
    "unknown",       "REQUEST", "RESPONSE", "ERROR",  "CANCEL", "STREAM_DATA", "STREAM_END",
    "STREAM_CREDIT", "PING",    "PONG",     "GOAWAY", "MEMORY", "MEMORY_REPLY"};

bool known(std::uint8_t kind) noexcept { return kind >= kind_min && kind <= kind_max; }

std::unexpected<Error> protocol_error(std::string text) {
  return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, std::move(text)));
}

std::string name_of(std::uint8_t kind) { return std::string(to_string(static_cast<FrameKind>(kind))); }

std::unexpected<Error> short_head(Bytes head) {
  return protocol_error("a frame of " + std::to_string(head.size()) + " bytes is shorter than its header (" +
                        std::to_string(header_bytes) + ")");
}

// Returns the CRC32C (Castagnoli) over the head, with its checksum field taken as zero, then the payload.
std::uint32_t frame_checksum(Bytes head, std::span<const ConstBuffer> payload) noexcept {
  constexpr std::array<std::byte, 4> zero{};
  std::uint32_t crc = crc32c(0, head.first(at::checksum));
  crc = crc32c(crc, zero);
  crc = crc32c(crc, head.subspan(at::checksum + zero.size()));
  for (const ConstBuffer& piece : payload) crc = crc32c(crc, {piece.data, piece.size});
  return crc;
}

}  // namespace

std::string_view to_string(FrameKind kind) noexcept {
  const auto number = static_cast<std::uint8_t>(kind);
  return names[known(number) ? number : 0];
}

// The result is filled in place: this function is on the path of every message.
Result<Frame> decode_frame(Bytes head, Bytes payload, std::size_t payload_bytes) {
  Result<Frame> result(std::in_place);
  if (head.size() < header_bytes) [[unlikely]] {
    result = short_head(head);
    return result;
  }
  Frame& frame = *result;
  frame.header = head.data();
  const auto kind = load_le<std::uint8_t>(frame.header + at::kind);
  const auto flags = load_le<std::uint8_t>(frame.header + at::flags);
  const std::size_t metadata_bytes = load_le<std::uint16_t>(frame.header + at::metadata_bytes);
  const std::size_t attachment_bytes = load_le<std::uint32_t>(frame.header + at::attachment_bytes);
  const std::size_t body_at = header_bytes + metadata_bytes;
  frame.kind = static_cast<FrameKind>(kind);
  const bool carries_payload = frame.kind == FrameKind::request || frame.kind == FrameKind::response ||
                               frame.kind == FrameKind::stream_data || frame.kind == FrameKind::memory ||
                               frame.kind == FrameKind::memory_reply;
  if (!known(kind)) [[unlikely]] {
    result = protocol_error("unknown frame kind " + std::to_string(kind));
  } else if ((flags & ~flags_known) != 0) [[unlikely]] {
    result = protocol_error("unknown frame flags " + std::to_string(flags & ~flags_known) + " in " + name_of(kind));
  } else if (body_at > head.size()) [[unlikely]] {
    result = protocol_error("metadata of " + std::to_string(metadata_bytes) + " bytes passes the end of the " +
                            name_of(kind) + " frame (" + std::to_string(head.size()) + " bytes)");
  } else if (attachment_bytes > payload_bytes) [[unlikely]] {
    result = protocol_error("an attachment of " + std::to_string(attachment_bytes) +
                            " bytes is larger than the payload (" + std::to_string(payload_bytes) + " bytes)");
  } else if (payload_bytes != 0 && !carries_payload) [[unlikely]] {
    result = protocol_error(name_of(kind) + " frame with a payload of " + std::to_string(payload_bytes) +
                            " bytes: this kind has no payload");
  } else {
    frame.metadata = head.subspan(header_bytes, metadata_bytes);
    frame.body = head.subspan(body_at);
    if (!payload.empty()) {
      frame.payload = payload.first(payload.size() - attachment_bytes);
      frame.attachment = payload.last(attachment_bytes);
    }
  }
  return result;
}

Result<Frame> decode_cut_frame(Bytes head) {
  if (head.size() < header_bytes) return short_head(head);
  const auto kind = load_le<std::uint8_t>(head.data() + at::kind);
  if (!known(kind)) return protocol_error("unknown frame kind " + std::to_string(kind));
  return Frame{.header = head.data(), .kind = static_cast<FrameKind>(kind)};
}

ErrorCode decode_error_code(std::uint32_t number) noexcept {
  constexpr auto last = static_cast<std::uint32_t>(ErrorCode::unauthenticated);
  return number == 0 || number > last ? ErrorCode::internal : static_cast<ErrorCode>(number);
}

ErrorScope decode_error_scope(std::uint32_t number) noexcept {
  constexpr auto last = static_cast<std::uint32_t>(ErrorScope::transport);
  return number > last ? ErrorScope::call : static_cast<ErrorScope>(number);
}

void write_checksum(MutableBytes head, std::span<const ConstBuffer> payload) noexcept {
  store_le(head.data() + at::checksum, frame_checksum(head, payload));
}

bool checksum_matches(Bytes head, Bytes payload) noexcept {
  if ((load_le<std::uint8_t>(head.data() + at::flags) & flag_checksum) == 0) return true;
  const ConstBuffer piece{payload.data(), payload.size()};
  return frame_checksum(head, std::span(&piece, payload.empty() ? 0U : 1U)) ==
         load_le<std::uint32_t>(head.data() + at::checksum);
}

}  // namespace hawser::wire
