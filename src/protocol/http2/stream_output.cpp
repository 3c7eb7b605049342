#include "protocol/http2/stream_output.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace hawser::protocol::http2 {

bool StreamOutput::add(Buffer head, std::span<const ConstBuffer> pieces, SendCompletion* owner, std::uint32_t credit) {
  const std::size_t before = chunks_.size();
  std::size_t bytes = head.size();
  bool borrows = false;
  try {
    chunks_.push_back({.own = std::move(head), .loan = {}});
    for (const ConstBuffer& piece : pieces) {
      if (piece.size == 0) continue;
      bytes += piece.size;
      if (owner == nullptr) {
        chunks_.push_back({.own = Buffer::copy_of(Bytes(piece.data, piece.size)), .loan = {}});
      } else {
        chunks_.push_back({.own = {}, .loan = piece, .owner = owner});
        borrows = true;
      }
    }
  } catch (...) {
    chunks_.resize(before);
    throw;
  }
  bytes_ += bytes;
  has_loans_ = has_loans_ || borrows;
  Chunk& last = chunks_.back();
  last.credit = credit;
  last.last = owner != nullptr && last.owner == owner;
  return last.last;
}

std::uint32_t StreamOutput::move_to(pipe::SendQueue& queue, std::size_t count) {
  bytes_ -= count;
  taken_ += count;
  std::uint32_t credit = 0;
  while (count != 0) {
    Chunk& chunk = chunks_[first_];
    const bool loaned = chunk.owner != nullptr;
    const Bytes rest = (loaned ? Bytes(chunk.loan.data, chunk.loan.size) : chunk.own.bytes()).subspan(offset_);
    const std::size_t part = std::min(count, rest.size());
    const bool whole = part == rest.size();
    if (loaned) {
      if (part != 0) queue.borrow_part({rest.data(), part}, *chunk.owner, whole && chunk.last);
    } else if (part <= copied_bytes_max) {
      if (part != 0) {
        std::memcpy(queue.reserve(part), rest.data(), part);
        queue.commit(part);
      }
    } else {
      queue.share(chunk.own.slice(offset_, part));
    }
    count -= part;
    if (!whole) {
      offset_ += part;
      break;
    }
    credit += chunk.credit;
    chunk = {};
    offset_ = 0;
    ++first_;
  }
  if (first_ == chunks_.size()) clear_chunks();
  return credit;
}

void StreamOutput::clear_chunks() noexcept {
  chunks_.clear();
  first_ = 0;
  offset_ = 0;
  has_loans_ = false;
}

bool StreamOutput::drop(pipe::SendQueue& queue) noexcept {
  bool copied = true;
  bytes_ = 0;
  for (std::size_t i = first_; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    if (!chunk.last) continue;
    try {
      queue.copy_and_release(*chunk.owner);
    } catch (const std::bad_alloc&) {
      queue.clear();
      copied = false;
    }
    chunk.owner->on_send_complete();
  }
  clear_chunks();
  return copied;
}

void StreamOutput::copy_and_release(const SendCompletion& owner) {
  if (!has_loans_) return;
  for (std::size_t i = first_; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    if (chunk.owner != &owner) continue;
    chunk.own = Buffer::copy_of(Bytes(chunk.loan.data, chunk.loan.size));
    chunk.owner = nullptr;
    chunk.last = false;
  }
}

}  // namespace hawser::protocol::http2
