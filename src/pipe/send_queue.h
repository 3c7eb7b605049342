#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "hawser/bytes.h"

namespace hawser::pipe {

// Queue of bytes to be sent, in order. Small data is copied into blocks of the queue; large data stays in its owner's
// memory. The small data behind everything else is the tail. Most connections send nothing else, so that it needs no
// segment.
class SendQueue {
 public:
  static constexpr std::size_t block_bytes = 64 * 1024;

  SendQueue() noexcept = default;
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;
  ~SendQueue() { clear(); }

  // Returns contiguous memory for `size` bytes behind everything that is queued. It is valid until the next call.
  std::byte* reserve(std::size_t size) {
    if (block_ == nullptr || block_->size() - used_ < size) return reserve_block(size);
    return block_->data() + used_;
  }
  // Queues the first `size` bytes of the reserved memory.
  void commit(std::size_t size) noexcept {
    used_ += size;
    bytes_ += size;
  }
  // Queues memory of `owner`, which is notified when the last piece has been sent. Without an owner, the memory is
  // copied.
  void borrow(std::span<const ConstBuffer> pieces, SendCompletion* owner);
  // Queues a piece, which is not empty, of the memory of `owner`. The owner is notified after the piece that is `last`.
  void borrow_part(const ConstBuffer& piece, SendCompletion& owner, bool last);
  // Queues bytes that are not empty. The queue keeps their block until they have been sent.
  void share(const Buffer& bytes);

  // Copies the queued memory of `owner`. The owner will not be notified.
  void copy_and_release(SendCompletion& owner);

  // The memory to be sent if it is one piece, else null. It is valid until the queue changes.
  ConstBuffer only_piece() const noexcept {
    if (segments_.empty() && tail_ != used_) [[likely]]
      return tail();
    return segments_.size() - first_ == 1 && tail_ == used_ ? segments_[first_].bytes : ConstBuffer();
  }
  // Fills `pieces` with the memory to be sent next. Returns their number.
  std::size_t peek(std::span<ConstBuffer> pieces) const noexcept;
  // Removes the first `size` bytes, which have been sent, and notifies the owners whose last piece is among them.
  void consume(std::size_t size) noexcept;

  std::size_t bytes() const noexcept { return bytes_; }
  bool empty() const noexcept { return bytes_ == 0; }
  // Drops everything and notifies the owners.
  void clear() noexcept;

 private:
  struct Segment {
    ConstBuffer bytes;
    Block* block;           // The segment owns one reference; null for borrowed memory.
    SendCompletion* owner;  // Owner of borrowed memory, else null.
    bool last;              // The last piece of the owner, which is notified after it.
  };

  ConstBuffer tail() const noexcept { return {block_->data() + tail_, used_ - tail_}; }
  std::byte* reserve_block(std::size_t size);
  void add_segment(const Segment& segment);
  void end_tail();
  void consume_segments(std::size_t size) noexcept;
  void drop_front() noexcept;
  void drop_block() noexcept;

  std::vector<Segment> segments_;  // The queued ones begin at first_. Empty if none is queued.
  std::size_t first_ = 0;
  std::size_t bytes_ = 0;
  Block* block_ = nullptr;  // Receives the next small data at used_.
  std::size_t tail_ = 0;    // The bytes from here to used_ are the tail: they follow the segments.
  std::size_t used_ = 0;
};

}  // namespace hawser::pipe
