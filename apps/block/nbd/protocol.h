#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "hawser/bytes.h"

// Numbers of the NBD protocol, as its specification names them (proto.md of the NetworkBlockDevice project). All
// numbers on the wire are big-endian.
namespace hawser::block::nbd {

inline constexpr std::uint64_t greeting_magic = 0x4e42444d41474943;  // "NBDMAGIC"
inline constexpr std::uint64_t option_magic = 0x49484156454f5054;    // "IHAVEOPT"
inline constexpr std::uint64_t option_reply_magic = 0x3e889045565a9;
inline constexpr std::uint32_t request_magic = 0x25609513;
inline constexpr std::uint32_t simple_reply_magic = 0x67446698;
inline constexpr std::uint32_t structured_reply_magic = 0x668e33ef;

// Flags of the server's greeting and of the client's answer.
inline constexpr std::uint32_t fixed_newstyle = 1U << 0;
inline constexpr std::uint32_t no_zeroes = 1U << 1;

namespace option {
inline constexpr std::uint32_t export_name = 1;
inline constexpr std::uint32_t abort = 2;
inline constexpr std::uint32_t list = 3;
inline constexpr std::uint32_t starttls = 5;
inline constexpr std::uint32_t info = 6;
inline constexpr std::uint32_t go = 7;
inline constexpr std::uint32_t structured_reply = 8;
inline constexpr std::uint32_t list_meta_context = 9;
inline constexpr std::uint32_t set_meta_context = 10;
}  // namespace option

namespace option_reply {
inline constexpr std::uint32_t ack = 1;
inline constexpr std::uint32_t server = 2;
inline constexpr std::uint32_t info = 3;
inline constexpr std::uint32_t meta_context = 4;
inline constexpr std::uint32_t error = 1U << 31;
inline constexpr std::uint32_t unsupported = error + 1;
inline constexpr std::uint32_t invalid = error + 3;
inline constexpr std::uint32_t platform = error + 4;
inline constexpr std::uint32_t tls_required = error + 5;
inline constexpr std::uint32_t unknown = error + 6;
inline constexpr std::uint32_t too_big = error + 9;
}  // namespace option_reply

namespace information {
inline constexpr std::uint16_t export_ = 0;
inline constexpr std::uint16_t name = 1;
inline constexpr std::uint16_t block_size = 3;
}  // namespace information

// Transmission flags: what an export can do.
namespace transmission {
inline constexpr std::uint16_t has_flags = 1U << 0;
inline constexpr std::uint16_t read_only = 1U << 1;
inline constexpr std::uint16_t flush = 1U << 2;
inline constexpr std::uint16_t fua = 1U << 3;
inline constexpr std::uint16_t trim = 1U << 5;
inline constexpr std::uint16_t write_zeroes = 1U << 6;
inline constexpr std::uint16_t dont_fragment = 1U << 7;
inline constexpr std::uint16_t multi_connection = 1U << 8;
inline constexpr std::uint16_t fast_zero = 1U << 11;
}  // namespace transmission

namespace command {
inline constexpr std::uint16_t read = 0;
inline constexpr std::uint16_t write = 1;
inline constexpr std::uint16_t disconnect = 2;
inline constexpr std::uint16_t flush = 3;
inline constexpr std::uint16_t trim = 4;
inline constexpr std::uint16_t write_zeroes = 6;
inline constexpr std::uint16_t block_status = 7;
}  // namespace command

namespace command_flag {
inline constexpr std::uint16_t fua = 1U << 0;
inline constexpr std::uint16_t no_hole = 1U << 1;
inline constexpr std::uint16_t dont_fragment = 1U << 2;
inline constexpr std::uint16_t one_extent = 1U << 3;
inline constexpr std::uint16_t fast_zero = 1U << 4;
}  // namespace command_flag

namespace chunk {
inline constexpr std::uint16_t done_flag = 1;
inline constexpr std::uint16_t none = 0;
inline constexpr std::uint16_t offset_data = 1;
inline constexpr std::uint16_t block_status = 5;
inline constexpr std::uint16_t error = (1U << 15) + 1;
}  // namespace chunk

// Bits of a block status in the context base:allocation.
inline constexpr std::uint32_t state_hole = 1U << 0;
inline constexpr std::uint32_t state_zero = 1U << 1;

// Errors of replies.
namespace status {
inline constexpr std::uint32_t ok = 0;
inline constexpr std::uint32_t not_permitted = 1;
inline constexpr std::uint32_t io = 5;
inline constexpr std::uint32_t no_memory = 12;
inline constexpr std::uint32_t invalid = 22;
inline constexpr std::uint32_t no_space = 28;
inline constexpr std::uint32_t overflow = 75;
inline constexpr std::uint32_t not_supported = 95;
inline constexpr std::uint32_t shutdown = 108;
}  // namespace status

// Bytes of the data of one read or write.
inline constexpr std::uint32_t payload_bytes_max = std::uint32_t{32} << 20;
inline constexpr std::uint32_t block_bytes_preferred = 4096;
// The specification's limit of a string.
inline constexpr std::size_t string_bytes_max = 4096;
// The text of an error.
inline constexpr std::size_t error_text_bytes_max = 1024;
static_assert(error_text_bytes_max <= string_bytes_max);
inline constexpr std::string_view allocation_context = "base:allocation";
inline constexpr std::uint32_t allocation_context_id = 1;

// Reads the number at the front of `in`, which has its bytes.
template <class Number>
Number load(Bytes in) noexcept {
  Number number = 0;
  std::memcpy(&number, in.data(), sizeof(number));
  return std::endian::native == std::endian::big ? number : std::byteswap(number);
}

// Writes a number to `out` and returns the place behind it.
template <class Number>
std::byte* store(std::byte* out, Number number) noexcept {
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    out[i] = static_cast<std::byte>(number >> 8 * (sizeof(Number) - 1 - i));
  }
  return out + sizeof(Number);
}

template <class Number>
void append(std::string& out, Number number) {
  std::byte bytes[sizeof(Number)];
  store(bytes, number);
  out.append(as_text(bytes));
}

}  // namespace hawser::block::nbd
