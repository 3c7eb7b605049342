#pragma once

#include <cstdint>

#include "hawser/bytes.h"

// Not part of hawser.h.
namespace hawser {

// The CRC32C (Castagnoli, RFC 3720 appendix B.4) of `bytes`, which continues the checksum `crc` of the bytes before
// them. At the beginning `crc` is 0. Uses the processor's instruction where it has one. Any thread.
std::uint32_t crc32c(std::uint32_t crc, Bytes bytes) noexcept;
inline std::uint32_t crc32c(Bytes bytes) noexcept { return crc32c(0, bytes); }

}  // namespace hawser
