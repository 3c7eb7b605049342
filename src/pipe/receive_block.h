#pragma once

#include <cassert>
#include <cstddef>
#include <utility>

#include "hawser/bytes.h"

namespace hawser::pipe {

// The block into which a connection receives. Its bytes [begin, end) have been received and not been taken yet. An idle
// connection has no block: there may be thousands of them. Whoever still reads bytes that have been taken holds a
// reference to the block of its own. Loop's thread only.
class ReceiveBlock {
 public:
  // A connection that waits for more bytes keeps at most a block of this size, unless it has received a longer part.
  static constexpr std::size_t parked_bytes_max = 16 * 1024;

  ReceiveBlock() noexcept = default;
  ReceiveBlock(const ReceiveBlock&) = delete;
  ReceiveBlock& operator=(const ReceiveBlock&) = delete;
  ~ReceiveBlock() { drop(); }

  // The bytes that have been received and not been taken. They are at the same place until fit(), replace(), park() or
  // drop().
  Bytes bytes() const noexcept { return {data(), held()}; }
  const std::byte* data() const noexcept { return block_ == nullptr ? nullptr : block_->data() + begin_; }
  std::size_t held() const noexcept { return end_ - begin_; }
  bool empty() const noexcept { return begin_ == end_; }
  // Null while the connection has none.
  Block* block() const noexcept { return block_; }
  // The size of the block; 0 without one.
  std::size_t size() const noexcept { return block_ == nullptr ? 0 : block_->size(); }

  // The memory behind the bytes, for the next ones; received() adds its first `bytes` bytes.
  MutableBytes space() const noexcept {
    return block_ == nullptr ? MutableBytes() : MutableBytes(block_->data() + end_, block_->size() - end_);
  }
  void received(std::size_t bytes) noexcept { end_ += bytes; }
  void take(std::size_t bytes) noexcept { begin_ += bytes; }

  // True if the block has contiguous memory for `wanted` bytes, counted from the first one that is not taken.
  bool has_room(std::size_t wanted) const noexcept { return block_ != nullptr && block_->size() - begin_ >= wanted; }
  // Makes that true without other memory, if it is possible: nobody else uses the block, and it is long enough.
  [[nodiscard]] bool fit(std::size_t wanted) noexcept;
  // Acquires a block where there is none. May throw std::bad_alloc.
  void begin(std::size_t bytes) {
    assert(block_ == nullptr);
    block_ = Block::allocate(bytes);
  }
  // Moves the bytes to a new block of at least `bytes` bytes, and at least held(). May throw std::bad_alloc.
  void replace(std::size_t bytes);
  // For a connection that receives nothing for the time being: a peer may send the beginning of a message and delay the
  // rest. Moves at most `bytes_max` bytes to a block of their size, if that is much smaller. May throw std::bad_alloc.
  void park(std::size_t bytes_max = parked_bytes_max);
  // Without bytes, releases the block.
  void drop_if_empty() noexcept {
    if (begin_ == end_) drop();
  }
  // Releases the block and forgets its bytes.
  void drop() noexcept {
    begin_ = end_ = 0;
    if (block_ != nullptr) std::exchange(block_, nullptr)->release();
  }

 private:
  Block* block_ = nullptr;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace hawser::pipe
