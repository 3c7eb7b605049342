#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "protocol/resp/reply_writer.h"

namespace hawser::kv {

// Replies in pieces of memory. A reply that is added moves none of the others, and a long one has a piece of its own
// length. One thread.
class ReplyPieces final : public protocol::resp::ReplyMemory {
 public:
  // Bytes of the replies that were flushed, also of those that were moved.
  std::size_t size() const noexcept { return size_; }
  // Writes the next `bytes` of the replies, from the first one on. A long part is not copied: `share(buffer)` queues it
  // behind what was flushed. The memory of each piece is freed as soon as all of it was sent. Nothing is added
  // afterwards.
  template <class Share>
  void move_to(protocol::resp::ReplyWriter& to, std::size_t bytes, Share share) {
    constexpr std::size_t copied_bytes = 2;  // The end of each part, so that a flush() follows what was shared.
    while (bytes != 0) {
      Piece& piece = pieces_[first_];
      std::size_t part = std::min(bytes, piece.used - moved_);
      bytes -= part;
      if (part >= piece_bytes_max) {
        to.flush();
        share(piece.memory.slice(moved_, part - copied_bytes));
        moved_ += part - copied_bytes;
        part = copied_bytes;
      }
      to.raw(piece.memory.text().substr(moved_, part));
      moved_ += part;
      if (moved_ != piece.used) continue;
      piece.memory = {};
      ++first_;
      moved_ = 0;
    }
  }

 private:
  struct Piece {
    Buffer memory;
    std::size_t used = 0;
  };
  static constexpr std::size_t piece_bytes_min = 256;
  static constexpr std::size_t piece_bytes_max = std::size_t{64} << 10;  // Longer ones have one long reply.

  char* more(std::size_t used, std::size_t bytes, std::size_t& size) override {
    if (used != 0) pieces_.back().used += used;
    size_ += used;
    size = 0;
    if (bytes == 0) return nullptr;
    if (pieces_.empty() || pieces_.back().memory.size() - pieces_.back().used < bytes) {
      const std::size_t capacity = std::max(bytes, std::clamp(size_, piece_bytes_min, piece_bytes_max));
      if (!pieces_.empty() && pieces_.back().used == 0) pieces_.pop_back();
      pieces_.push_back({.memory = Buffer::allocate(capacity)});
    }
    Piece& last = pieces_.back();
    size = last.memory.size() - last.used;
    return reinterpret_cast<char*>(last.memory.mutable_data()) + last.used;
  }

  std::vector<Piece> pieces_;
  std::size_t first_ = 0;  // The first piece that was not moved completely,
  std::size_t moved_ = 0;  // and the bytes of it that were.
  std::size_t size_ = 0;
};

}  // namespace hawser::kv
