#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hawser::detail {

// How many bytes of replies a connection has not sent yet. No I/O.
class UnsentReplies {
 public:
  // Neighbours of together so many bytes count as one, which is unsent until its last byte is sent.
  static constexpr std::size_t merged_bytes_max = std::size_t{64} << 10;

  // A reply of `bytes` ends at this position of the stream. May throw std::bad_alloc; the reply is not counted then.
  void add(std::uint64_t position, std::size_t bytes) {
    if (!replies_.empty() && replies_.back().bytes + bytes <= merged_bytes_max) {
      replies_.back() = {position, replies_.back().bytes + bytes};
    } else {
      replies_.push_back({position, bytes});
    }
    bytes_ += bytes;
  }
  // The bytes that are unsent when the stream has been sent up to `sent`.
  std::size_t bytes(std::uint64_t sent) noexcept {
    const auto unsent = std::find_if(replies_.begin(), replies_.end(), [&](const Reply& one) {
      const bool gone = one.position <= sent;
      if (gone) bytes_ -= one.bytes;
      return !gone;
    });
    replies_.erase(replies_.begin(), unsent);
    return bytes_;
  }
  void clear() noexcept {
    replies_.clear();
    bytes_ = 0;
  }

 private:
  struct Reply {
    std::uint64_t position = 0;
    std::size_t bytes = 0;
  };
  std::vector<Reply> replies_;  // In the order of their positions.
  std::size_t bytes_ = 0;       // Their sum.
};

}  // namespace hawser::detail
