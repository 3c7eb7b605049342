#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "hawser/bytes.h"

namespace hawser::transport {

// The bytes of all buffers together.
inline std::size_t total_bytes(std::span<const ConstBuffer> buffers) noexcept {
  std::size_t bytes = 0;
  for (const ConstBuffer& buffer : buffers) bytes += buffer.size;
  return bytes;
}

// Copies the buffers one behind the other to `to`, which has room for total_bytes(). Returns the end of the copy.
inline std::byte* gather(std::byte* to, std::span<const ConstBuffer> buffers) noexcept {
  for (const ConstBuffer& buffer : buffers) {
    if (buffer.size != 0) std::memcpy(to, buffer.data, buffer.size);
    to += buffer.size;
  }
  return to;
}

}  // namespace hawser::transport
