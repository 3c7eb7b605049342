#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"

namespace hawser::transport {

// Bytes on their way out, in order: small ones gathered in blocks of its own, large ones where their owner keeps them.
class SendQueue {
 public:
  static constexpr std::size_t block_bytes = 64 * 1024;

  SendQueue() noexcept = default;
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;
  ~SendQueue() { clear(); }

  // Contiguous room for `size` bytes behind all that is queued. Valid until the next call.
  std::byte* reserve(std::size_t size) {
    if (block_ == nullptr || block_->size() - used_ < size) return reserve_block(size);
    return block_->data() + used_;
  }
  // Queues the first `size` bytes of what was reserved.
  void commit(std::size_t size);
  // Queues memory of `owner`, who is told when the last piece has left; without an owner it is copied.
  void borrow(std::span<const ConstBuffer> pieces, SendCompletion* owner);

  // Copies what `owner` lent, who is not told any more.
  void copy_and_release(SendCompletion& owner);

  // Fills `pieces` with what is to be sent next; gives their number.
  std::size_t peek(std::span<ConstBuffer> pieces) const noexcept;
  // The first `size` bytes have left.
  void consume(std::size_t size) noexcept;

  std::size_t bytes() const noexcept { return bytes_; }
  bool empty() const noexcept { return bytes_ == 0; }
  // Drops everything and tells the owners.
  void clear() noexcept;

 private:
  struct Segment {
    const std::byte* data;
    std::size_t size;
    Block* block;           // A reference of ours, or null for borrowed memory.
    SendCompletion* owner;  // Of borrowed memory.
    bool last;              // The owner's last piece: tell it.
  };

  std::byte* reserve_block(std::size_t size);
  void drop_front() noexcept;
  void drop_block() noexcept;

  std::vector<Segment> segments_;  // From first_ on.
  std::size_t first_ = 0;
  std::size_t bytes_ = 0;
  Block* block_ = nullptr;  // The one being filled.
  std::size_t used_ = 0;
};

}  // namespace hawser::transport
