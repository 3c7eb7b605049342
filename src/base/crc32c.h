#pragma once

#include <cstdint>

#include "hawser/bytes.h"

namespace hawser {

// CRC32C (Castagnoli, RFC 3720 appendix B.4) of `bytes`, continuing from `crc`, which is 0 at the start. Uses the
// processor's instruction where it has one.
std::uint32_t crc32c(std::uint32_t crc, Bytes bytes) noexcept;

}  // namespace hawser
