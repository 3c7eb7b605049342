#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hawser/bytes.h"

namespace hawser::block::nbd {

// Received bytes of a client that were not used yet, in one piece. No I/O.
class NbdInput {
 public:
  // Bytes of one receive. A socket has about so many.
  static constexpr std::size_t receive_bytes_max = 128 * 1024;
  // So many unused bytes are one piece, whatever was received before them.
  static constexpr std::size_t contiguous_bytes_max = 96 * 1024;
  // Longer rests stay where they are: to move them costs more than a receive of its own for what is missing.
  static constexpr std::size_t moved_bytes_max = 16 * 1024;

  NbdInput() : memory_(std::make_unique_for_overwrite<std::byte[]>(capacity)) {}

  Bytes unused() const noexcept { return Bytes(memory_.get() + begin_, end_ - begin_); }
  void use(std::size_t bytes) noexcept { begin_ += bytes; }
  // Memory for the next receive, behind the unused bytes. It may move them. `missing`: the bytes that the caller needs
  // behind them, together at most contiguous_bytes_max; 0 if it does not know.
  MutableBytes room(std::size_t missing) noexcept;
  // So many bytes are in the memory of room().
  void received(std::size_t bytes) noexcept;
  // So many bytes were received into other memory.
  void count(std::size_t bytes) noexcept { received_bytes_ += bytes; }
  // All bytes of the client so far.
  std::uint64_t received_bytes() const noexcept { return received_bytes_; }

 private:
  // A receive behind a rest that was moved to the front leaves room for the rest of another request.
  static constexpr std::size_t capacity = moved_bytes_max + receive_bytes_max + contiguous_bytes_max;

  const std::unique_ptr<std::byte[]> memory_;
  std::size_t begin_ = 0;  // Unused bytes: [begin_, end_).
  std::size_t end_ = 0;
  std::uint64_t received_bytes_ = 0;
};

}  // namespace hawser::block::nbd
