#pragma once

#include <cstddef>
#include <cstdint>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"

namespace hawser::protocol::http {

// The body of a request that arrives in pieces and is complete before a handler sees it. Its owner charges the memory.
// No I/O.
class CollectedBody {
 public:
  // The first memory of a body of unknown length has so many bytes.
  explicit CollectedBody(std::size_t first_bytes) noexcept : first_bytes_(first_bytes) {}

  // The size of the memory that a body of `bytes` bytes needs; at most capacity() if it needs none. `announced`: the
  // length that the head has stated; 0: none. If memory is scarce, or a long body has just begun, it grows in
  // proportion to what has arrived.
  std::size_t size_for(std::size_t bytes, std::uint64_t announced,
                       const detail::ReceiveAccount& account) const noexcept;
  // Allocates memory of that size. Throws std::bad_alloc, and keeps what it has then.
  void grow(std::size_t capacity);
  // Adds a piece, for which there is memory.
  void append(Bytes piece) noexcept;
  // Free memory behind the pieces, at most `bytes_max` bytes of it. filled() adds what was written there.
  MutableBytes space(std::uint64_t bytes_max) noexcept;
  void filled(std::size_t bytes) noexcept { bytes_ += bytes; }
  void clear() noexcept;

  std::size_t capacity() const noexcept { return memory_.size(); }
  // The pieces that have arrived.
  std::size_t size() const noexcept { return bytes_; }
  Bytes bytes() const noexcept { return memory_.bytes().first(bytes_); }
  // Shares the memory, which then outlives clear().
  const Buffer& memory() const noexcept { return memory_; }

 private:
  const std::size_t first_bytes_;
  Buffer memory_;
  std::size_t bytes_ = 0;  // At most memory_.size().
};

}  // namespace hawser::protocol::http
