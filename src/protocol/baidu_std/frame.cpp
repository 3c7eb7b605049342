#include "protocol/baidu_std/frame.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/decimal_text.h"

namespace hawser::protocol::baidu_std {
namespace {

constexpr std::size_t magic_bytes = 4;
constexpr const char* magic_of[] = {"PRPC", "STRM"};

std::unexpected<Error> malformed(std::string what) {
  return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, std::move(what)));
}

std::uint32_t load_be(const std::byte* from) noexcept {
  std::uint32_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return __builtin_bswap32(value);
}

void store_be(std::byte* to, std::uint32_t value) noexcept {
  value = __builtin_bswap32(value);
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

Result<std::optional<FrameHeader>> parse_header(Bytes received, const FrameLimits& limits) {
  const std::size_t present = std::min(received.size(), magic_bytes);
  FrameHeader header;
  if (std::memcmp(received.data(), magic_of[0], present) != 0) [[unlikely]] {
    if (std::memcmp(received.data(), magic_of[1], present) != 0) {
      return malformed("the bytes are not a frame of baidu_std: they begin neither with PRPC nor with STRM");
    }
    header.kind = BaiduStdFrameKind::stream;
  }
  if (received.size() < FrameHeader::bytes) return std::nullopt;
  header.body_bytes = load_be(received.data() + magic_bytes);
  header.meta_bytes = load_be(received.data() + magic_bytes + 4);
  if (header.body_bytes > limits.frame_bytes_max) [[unlikely]] {
    return malformed("a frame of " + count_text(header.body_bytes, "byte") + " exceeds message_bytes_max (" +
                     std::to_string(limits.frame_bytes_max) + "): raise it or send less");
  }
  if (header.meta_bytes > header.body_bytes) [[unlikely]] {
    return malformed("meta_size " + std::to_string(header.meta_bytes) + " exceeds body_size " +
                     std::to_string(header.body_bytes));
  }
  if (header.meta_bytes > limits.meta_bytes_max) [[unlikely]] {
    return malformed("a meta of " + count_text(header.meta_bytes, "byte") + " exceeds the limit of " +
                     count_text(limits.meta_bytes_max, "byte"));
  }
  return header;
}

std::size_t matching_magic(Bytes first) noexcept {
  std::size_t same = 0;
  while (same < std::min(first.size(), magic_bytes) && static_cast<char>(first[same]) == magic_of[0][same]) ++same;
  return same;
}

std::byte* write_header(std::byte* to, const FrameHeader& header) noexcept {
  std::memcpy(to, magic_of[static_cast<std::size_t>(header.kind)], magic_bytes);
  store_be(to + magic_bytes, header.body_bytes);
  store_be(to + magic_bytes + 4, header.meta_bytes);
  return to + FrameHeader::bytes;
}

}  // namespace hawser::protocol::baidu_std
