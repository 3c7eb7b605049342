#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

namespace hawser::kv {

// Bytes for a log file in pieces of memory, so that many of them are neither in one block nor copied again and again.
// One thread.
class LogPieces {
 public:
  // A piece takes no further bytes when it has so many.
  static constexpr std::size_t piece_bytes = std::size_t{64} << 10;

  // Calls `write(string)`, which appends bytes to the string.
  template <class Write>
  void append(Write write) {
    if (pieces_.empty() || pieces_.back().size() >= piece_bytes) {
      pieces_.emplace_back();
      if (pieces_.size() > 1) pieces_.back().reserve(2 * piece_bytes);
    }
    std::string& last = pieces_.back();
    const std::size_t before = last.size();
    write(last);
    size_ += last.size() - before;
  }
  // Appends the bytes of `more`, which is empty afterwards and keeps the memory of a piece that was copied.
  void take(LogPieces& more) {
    std::string kept;
    while (!more.pieces_.empty()) {
      std::string piece = std::move(more.pieces_.front());
      more.pieces_.pop_front();
      if (piece.size() >= piece_bytes) {
        size_ += piece.size();
        pieces_.push_back(std::move(piece));
      } else {
        append([&](std::string& last) { last += piece; });
        kept = std::move(piece);
      }
    }
    kept.clear();
    if (kept.capacity() > sizeof kept) more.pieces_.push_back(std::move(kept));
    more.size_ = 0;
  }
  // Removes the first piece and returns it. There are bytes.
  std::string take_front() {
    std::string front = std::move(pieces_.front());
    pieces_.pop_front();
    size_ -= front.size();
    return front;
  }
  void clear() noexcept {
    pieces_.clear();
    size_ = 0;
  }
  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }

 private:
  std::deque<std::string> pieces_;
  std::size_t size_ = 0;
};

}  // namespace hawser::kv
