#include "wire/frame.h"

#include <array>
#include <string>

#include "base/decimal_text.h"
#include "hawser/crc32c.h"

namespace hawser::wire {
namespace {

constexpr std::array<std::string_view, kind_max + 1> names = {
    "unknown",       "REQUEST", "RESPONSE", "ERROR",  "CANCEL", "STREAM_DATA", "STREAM_END",
    "STREAM_CREDIT", "PING",    "PONG",     "GOAWAY", "MEMORY", "MEMORY_REPLY"};

std::unexpected<Error> protocol_error(std::string text) {
  return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, std::move(text)));
}

std::unexpected<Error> short_head(Bytes head) {
  return protocol_error("a frame of " + count_text(head.size(), "byte") + " is shorter than its header (" +
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
  return names[detail::known(number) ? number : 0];
}

std::unexpected<Error> detail::malformed(Bytes head, std::size_t payload_bytes) {
  if (head.size() < header_bytes) return short_head(head);
  const HeaderForm form(head);
  if (!known(form.kind)) return protocol_error("unknown frame kind " + std::to_string(form.kind));
  const std::string name(to_string(static_cast<FrameKind>(form.kind)));
  if ((form.flags & ~flags_known) != 0) {
    return protocol_error("unknown frame flags " + std::to_string(form.flags & ~flags_known) + " in " + name);
  }
  if (header_bytes + form.metadata_bytes > head.size()) {
    return protocol_error("metadata of " + count_text(form.metadata_bytes, "byte") + " passes the end of the " + name +
                          " frame (" + count_text(head.size(), "byte") + ")");
  }
  if (form.attachment_bytes > payload_bytes) {
    return protocol_error("an attachment of " + count_text(form.attachment_bytes, "byte") +
                          " is larger than the payload (" + count_text(payload_bytes, "byte") + ")");
  }
  return protocol_error(name + " frame with a payload of " + count_text(payload_bytes, "byte") +
                        ": this kind has no payload");
}

Result<Frame> decode_cut_frame(Bytes head) {
  if (head.size() < header_bytes) return short_head(head);
  const auto kind = load_le<std::uint8_t>(head.data() + at::kind);
  if (!detail::known(kind)) return protocol_error("unknown frame kind " + std::to_string(kind));
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
