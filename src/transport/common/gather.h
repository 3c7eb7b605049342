#pragma once

#include <algorithm>
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

// Copies the bytes [from, from + size) of the buffers.
inline void gather_part(std::byte* to, std::span<const ConstBuffer> buffers, std::size_t from,
                        std::size_t size) noexcept {
  for (const ConstBuffer& buffer : buffers) {
    if (size == 0) return;
    if (from >= buffer.size) {
      from -= buffer.size;
      continue;
    }
    const std::size_t part = std::min(size, buffer.size - from);
    std::memcpy(to, buffer.data + from, part);
    to += part;
    size -= part;
    from = 0;
  }
}

// `bytes`: total_bytes().
inline Buffer gathered_copy(std::span<const ConstBuffer> buffers, std::size_t bytes) {
  Buffer copy = Buffer::allocate(bytes);
  gather(copy.mutable_data(), buffers);
  return copy;
}

}  // namespace hawser::transport
