#include "protocol/grpc/message_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rpc/port/announced_memory.h"

namespace hawser::protocol::grpc {

void MessageReader::reset() noexcept {
  prefix_have_ = length_ = done_ = room_ = 0;
  found_ = false;
  message_ = {};
  block_ = nullptr;
  memory_ = {};
  charge_.reset();
  charged_ = 0;
}

bool MessageReader::grow(std::size_t needed, detail::ReceiveAccount* account) {
  if (memory_.size() >= needed) return true;
  const std::size_t whole = room_ + length_;
  std::size_t size = whole;
  if (account == nullptr || !rpc::is_worth_its_memory(*account, whole, needed)) {
    const std::size_t factor = account == nullptr ? uncounted_step_factor : step_factor;
    size = std::min(whole, std::max({needed, first_step_bytes, factor * memory_.size()}));
  }
  if (account != nullptr) {
    if (!charge_.add(*account, size - charged_)) return false;
    charged_ = size;
  }
  Buffer larger = Buffer::allocate(size);
  if (done_ != 0) std::memcpy(larger.mutable_data() + room_, memory_.data() + room_, done_);
  memory_ = std::move(larger);
  return true;
}

MessageReader::Step MessageReader::next(Bytes& in, Block* block, std::size_t message_bytes_max,
                                        detail::ReceiveAccount* account) {
  if (std::exchange(found_, false)) {
    prefix_have_ = length_ = done_ = 0;
    message_ = {};
    block_ = nullptr;
    memory_ = {};
    charge_.reset();
    charged_ = 0;
  }
  if (prefix_have_ < prefix_bytes) {
    const std::size_t part = std::min(prefix_bytes - prefix_have_, in.size());
    if (part != 0) std::memcpy(prefix_.data() + prefix_have_, in.data(), part);
    prefix_have_ += part;
    in = in.subspan(part);
    if (prefix_have_ < prefix_bytes) return Step::more;
    if ((prefix_[0] & ~std::byte{1}) != std::byte{}) return Step::bad_flag;
    length_ = 0;
    for (std::size_t i = 1; i < prefix_bytes; ++i) length_ = (length_ << 8) | std::to_integer<std::size_t>(prefix_[i]);
    if (length_ > message_bytes_max) return Step::too_large;
    if (room_ == 0 && in.size() >= length_) {
      message_ = in.first(length_);
      block_ = block;
      in = in.subspan(length_);
      found_ = true;
      return Step::message;
    }
  }
  const std::size_t part = std::min(length_ - done_, in.size());
  if (part == 0 && done_ < length_) return Step::more;
  if (!grow(room_ + done_ + part, account)) return Step::no_memory;
  if (part != 0) std::memcpy(memory_.mutable_data() + room_ + done_, in.data(), part);
  done_ += part;
  in = in.subspan(part);
  if (done_ < length_) return Step::more;
  if (room_ + length_ != 0) {
    message_ = memory_.bytes().subspan(room_, length_);
    block_ = memory_.block();
  }
  found_ = true;
  return Step::message;
}

}  // namespace hawser::protocol::grpc
