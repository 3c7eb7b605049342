#include "block/nbd/nbd_input.h"

#include <algorithm>
#include <cstring>

namespace hawser::block::nbd {

MutableBytes NbdInput::room(std::size_t missing) noexcept {
  const std::size_t rest = end_ - begin_;
  if (begin_ > 0 && rest > moved_bytes_max && missing > 0 && missing <= capacity - end_) {
    // The rest of the request alone, so that the next request begins at the front.
    return {memory_.get() + end_, missing};
  }
  if (begin_ > 0) {
    std::memmove(memory_.get(), memory_.get() + begin_, rest);
    begin_ = 0;
    end_ = rest;
  }
  return {memory_.get() + end_, std::min(receive_bytes_max, capacity - end_)};
}

void NbdInput::received(std::size_t bytes) noexcept {
  end_ += bytes;
  received_bytes_ += bytes;
}

}  // namespace hawser::block::nbd
