#include "pipe/send_queue.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace hawser::pipe {

std::byte* SendQueue::reserve_block(std::size_t size) {
  if (block_ != nullptr) {
    end_tail();
    drop_block();
  }
  block_ = Block::allocate(std::max(size, block_bytes));
  return block_->data();
}

inline void SendQueue::drop_block() noexcept {
  tail_ = used_ = 0;
  if (block_ != nullptr) std::exchange(block_, nullptr)->release();
}

void SendQueue::add_segment(const Segment& segment) {
  end_tail();
  segments_.push_back(segment);
}

// Makes the tail a segment, since something else follows it.
void SendQueue::end_tail() {
  if (tail_ == used_) return;
  segments_.push_back({tail(), block_, nullptr, false});
  block_->retain();
  tail_ = used_;
}

void SendQueue::borrow(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  if (owner == nullptr) {
    for (const ConstBuffer& piece : pieces) {
      if (piece.size == 0) continue;
      std::memcpy(reserve(piece.size), piece.data, piece.size);
      commit(piece.size);
    }
    return;
  }
  bool queued = false;
  for (const ConstBuffer& piece : pieces) {
    if (piece.size == 0) continue;
    add_segment({piece, nullptr, owner, false});
    bytes_ += piece.size;
    queued = true;
  }
  if (!queued) return owner->on_send_complete();
  segments_.back().last = true;
}

void SendQueue::borrow_part(const ConstBuffer& piece, SendCompletion& owner, bool last) {
  add_segment({piece, nullptr, &owner, last});
  bytes_ += piece.size;
}

void SendQueue::share(const Buffer& bytes) {
  add_segment({{bytes.data(), bytes.size()}, bytes.block(), nullptr, false});
  bytes.block()->retain();
  bytes_ += bytes.size();
}

void SendQueue::copy_and_release(SendCompletion& owner) {
  for (std::size_t i = first_; i < segments_.size(); ++i) {
    Segment& segment = segments_[i];
    if (segment.owner != &owner) continue;
    Block* copy = Block::allocate(segment.bytes.size);
    std::memcpy(copy->data(), segment.bytes.data, segment.bytes.size);
    segment = {{copy->data(), segment.bytes.size}, copy, nullptr, false};
  }
}

std::size_t SendQueue::peek(std::span<ConstBuffer> pieces) const noexcept {
  const std::size_t count = std::min(pieces.size(), segments_.size() - first_);
  for (std::size_t i = 0; i < count; ++i) pieces[i] = segments_[first_ + i].bytes;
  if (count == pieces.size() || tail_ == used_) return count;
  pieces[count] = tail();
  return count + 1;
}

void SendQueue::drop_front() noexcept {
  const Segment front = segments_[first_++];
  if (first_ == segments_.size()) {
    segments_.clear();
    first_ = 0;
  } else if (first_ >= 1024 && first_ * 2 >= segments_.size()) {
    segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  if (front.block != nullptr) front.block->release();
  if (front.last) front.owner->on_send_complete();
}

void SendQueue::consume(std::size_t size) noexcept {
  assert(size <= bytes_);
  bytes_ -= size;
  if (!segments_.empty()) [[unlikely]]
    return consume_segments(size);
  tail_ += size;
  // An idle connection holds no block. The next connection that sends gets the block from the thread's pool, still in
  // the cache.
  if (bytes_ == 0) drop_block();
}

void SendQueue::consume_segments(std::size_t size) noexcept {
  // A notified owner may end the connection, which clears the queue.
  while (size != 0 && first_ < segments_.size()) {
    ConstBuffer& front = segments_[first_].bytes;
    if (size < front.size) {
      front.data += size;
      front.size -= size;
      return;
    }
    size -= front.size;
    drop_front();
  }
  if (block_ != nullptr) tail_ += size;
  if (bytes_ == 0) drop_block();
}

void SendQueue::clear() noexcept {
  bytes_ = 0;
  while (first_ < segments_.size()) drop_front();
  drop_block();
}

}  // namespace hawser::pipe
