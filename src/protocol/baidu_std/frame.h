#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "hawser/bytes.h"
#include "hawser/error.h"

// The 12 bytes before each frame of baidu_std: a magic, the bytes that follow, the bytes of the meta among them.
namespace hawser::protocol::baidu_std {

enum class BaiduStdFrameKind : std::uint8_t { rpc, stream };  // "PRPC" and "STRM".

struct FrameHeader {
  static constexpr std::size_t bytes = 12;
  BaiduStdFrameKind kind = BaiduStdFrameKind::rpc;
  std::uint32_t body_bytes = 0;  // Meta, data and attachment.
  std::uint32_t meta_bytes = 0;

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Limits of received frames. A frame beyond one ends the connection.
struct FrameLimits {
  std::size_t frame_bytes_max = std::size_t{64} << 20;  // FrameHeader::body_bytes.
  std::size_t meta_bytes_max = std::size_t{128} << 10;
};

// Returns the header at the front of `received`, or nothing if more bytes are needed. Fails as soon as the bytes cannot
// be a frame within the limits.
Result<std::optional<FrameHeader>> parse_header(Bytes received, const FrameLimits& limits);

// Returns the number of leading bytes of `first`, at most 4, that agree with the magic of a request; 4 is a match.
std::size_t matching_magic(Bytes first) noexcept;

// Writes FrameHeader::bytes. Returns the position behind them.
std::byte* write_header(std::byte* to, const FrameHeader& header) noexcept;

// The checksum of bRPC: CRC32C, masked so that the checksum of data that contains checksums stays good.
constexpr std::uint32_t mask_crc(std::uint32_t crc) noexcept { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

}  // namespace hawser::protocol::baidu_std
