#pragma once

#include <cassert>
#include <cstring>

#include "transport/shm/memory/layout.h"

namespace hawser::transport::shm {

// The writing end of a ring. What the reader writes is only used as far as it can be true.
class RingWriter {
 public:
  // `memory` is mapped twice in a row.
  RingWriter(std::byte* memory, std::size_t bytes, RingEnds& ends) noexcept
      : memory_(memory), bytes_(bytes), ends_(ends) {}

  // Whether `bytes` can be written now. A reader whose head can't be true has broken the protocol: see broken().
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
  // Shows the reader all that was written.
  void publish() noexcept {
    published_ = tail_;
    ends_.tail.store(tail_, std::memory_order_release);
  }
  // Whether the reader has made room since we last looked.
  bool has_moved() const noexcept { return ends_.head.load(std::memory_order_relaxed) != head_; }
  bool broken() const noexcept { return broken_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t room() const noexcept { return bytes_ - static_cast<std::size_t>(tail_ - head_); }
  void refresh() noexcept {
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
  std::uint64_t head_ = 0;  // As last seen; never beyond published_.
  bool broken_ = false;
};

// The reading end.
class RingReader {
 public:
  RingReader(const std::byte* memory, std::size_t bytes, RingEnds& ends) noexcept
      : memory_(memory), bytes_(bytes), ends_(ends) {}

  // How much can be read in one piece from at() on. A writer whose tail can't be true has broken the protocol: see
  // broken().
  std::size_t available() noexcept {
    if (tail_ == head_) refresh();
    return static_cast<std::size_t>(tail_ - head_);
  }
  // The same of what was seen last, without a new look.
  std::size_t left() const noexcept { return static_cast<std::size_t>(tail_ - head_); }
  const std::byte* at() const noexcept { return memory_ + (head_ & (bytes_ - 1)); }
  // The record at at(): a copy, so that it stays as it was checked.
  Record record() const noexcept {
    Record copy;
    std::memcpy(&copy, at(), sizeof copy);
    // The compiler must not read it again.
    asm volatile("" : : : "memory");
    return copy;
  }
  void advance(std::size_t bytes) noexcept { head_ += bytes; }
  std::size_t unpublished() const noexcept { return static_cast<std::size_t>(head_ - published_); }
  // Gives the writer all the room that was read.
  void publish() noexcept {
    published_ = head_;
    ends_.head.store(head_, std::memory_order_release);
  }
  // Whether there is more than was seen.
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
  std::uint64_t tail_ = 0;  // As last seen: at most a ring beyond head_.
  bool broken_ = false;
};

}  // namespace hawser::transport::shm
