#pragma once

#include <cassert>
#include <cstring>

#include "transport/shm/memory/layout.h"

namespace hawser::transport::shm {

// The sender's end of a ring. The reader's values are used only if they are possible.
class RingWriter {
 public:
  // `memory` is mapped twice in a row.
  RingWriter(std::byte* memory, std::size_t bytes, RingEnds& ends) noexcept
      : memory_(memory), bytes_(bytes), ends_(ends) {}

  // True if `bytes` can be written now. A reader with an impossible head has violated the protocol: see broken().
  bool has_room(std::size_t bytes) noexcept {
    if (bytes <= room()) [[likely]]
      return true;
    refresh();
    return bytes <= room();
  }
  std::byte* at() const noexcept { return memory_ + (tail_ & (bytes_ - 1)); }
  // `bytes`, a multiple of 16, have been written at at().
  void advance(std::size_t bytes) noexcept { tail_ += bytes; }
  std::size_t unpublished() const noexcept { return static_cast<std::size_t>(tail_ - published_); }
  // Makes everything that was written visible to the reader. The release orders the bytes before the tail.
  void publish() noexcept {
    published_ = tail_;
    ends_.tail.store(tail_, std::memory_order_release);
  }
  // True if the reader has made room since the last check. A hint: has_room() acquires.
  bool has_moved() const noexcept { return ends_.head.load(std::memory_order_relaxed) != head_; }
  bool broken() const noexcept { return broken_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t room() const noexcept { return bytes_ - static_cast<std::size_t>(tail_ - head_); }
  void refresh() noexcept {
    // Acquire: the reader has read the bytes that are overwritten.
    const std::uint64_t head = ends_.head.load(std::memory_order_acquire);
    if (head - head_ > published_ - head_) {
      broken_ = true;
    } else {
      head_ = head;
    }
  }

  std::byte* const memory_;
  const std::size_t bytes_;
  RingEnds& ends_;
  std::uint64_t tail_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t head_ = 0;  // Last value that was read; never beyond published_.
  bool broken_ = false;
};

// The receiver's end of a ring.
class RingReader {
 public:
  RingReader(const std::byte* memory, std::size_t bytes, RingEnds& ends) noexcept
      : memory_(memory), bytes_(bytes), ends_(ends) {}

  // Number of bytes that can be read in one piece from at() on. A writer with an impossible tail has violated the
  // protocol: see broken().
  std::size_t available() noexcept {
    if (tail_ == head_) refresh();
    return static_cast<std::size_t>(tail_ - head_);
  }
  // The same for the last tail that was read, without reading it again.
  std::size_t left() const noexcept { return static_cast<std::size_t>(tail_ - head_); }
  const std::byte* at() const noexcept { return memory_ + (head_ & (bytes_ - 1)); }
  // Returns a copy of the record at at(), so that it does not change after it was checked.
  RingRecord record() const noexcept {
    RingRecord copy;
    std::memcpy(&copy, at(), sizeof copy);
    // Prevents the compiler from reading it again.
    asm volatile("" : : : "memory");
    return copy;
  }
  void advance(std::size_t bytes) noexcept { head_ += bytes; }
  std::size_t unpublished() const noexcept { return static_cast<std::size_t>(head_ - published_); }
  // Returns all room that was read to the writer. The release orders the reads before the head.
  void publish() noexcept {
    published_ = head_;
    ends_.head.store(head_, std::memory_order_release);
  }
  // True if there is more than at the last check. A hint: available() acquires.
  bool has_moved() const noexcept { return ends_.tail.load(std::memory_order_relaxed) != tail_; }
  bool broken() const noexcept { return broken_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void refresh() noexcept {
    const std::uint64_t tail = ends_.tail.load(std::memory_order_acquire);
    if (tail - head_ > bytes_ || tail % record_alignment != 0) {
      broken_ = true;
    } else {
      tail_ = tail;
    }
  }

  const std::byte* const memory_;
  const std::size_t bytes_;
  RingEnds& ends_;
  std::uint64_t head_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t tail_ = 0;  // Last value that was read; at most one ring beyond head_.
  bool broken_ = false;
};

}  // namespace hawser::transport::shm
