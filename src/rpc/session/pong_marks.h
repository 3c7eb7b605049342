#pragma once

#include <cstddef>
#include <cstdint>

namespace hawser::rpc {

// A pong that has not been sent yet answers later pings too, unless only the later ping has a body. So pings from a
// peer that does not read cannot accumulate answers. Positions are those of the bytes that the connection sends.
class PongMarks {
 public:
  // Whether a pong that is behind position `sent` answers a ping whose body has that length.
  bool answered(std::size_t body_bytes, std::uint64_t sent) const noexcept {
    return sent < (body_bytes == 0 ? last_ : last_with_body_);
  }
  // A pong with a body of that length has been queued; it ends at position `end`.
  void add(std::size_t body_bytes, std::uint64_t end) noexcept {
    last_ = end;
    if (body_bytes != 0) last_with_body_ = end;
  }

 private:
  std::uint64_t last_ = 0;            // The end of the last pong,
  std::uint64_t last_with_body_ = 0;  // and of the last one with a body.
};

}  // namespace hawser::rpc
