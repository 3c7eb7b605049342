#include "transport/common/message_assembly.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace hawser::transport {

void MessageAssembly::begin(std::size_t head_bytes, std::size_t payload_bytes,
                            hawser::detail::ReceiveAccount* account) {
  assert(!active_);
  active_ = true;
  cut_ = selected_ = false;
  head_bytes_ = head_bytes;
  done_ = 0;
  head_ = {};
  head_charge_ = ArrivingCharge(account);
  payload_ = PayloadBuffer(payload_bytes, account);
}

bool MessageAssembly::append(Bytes part, MessageSink& sink, std::size_t receive_buffer_bytes_min, const bool& ended) {
  assert(active_ && part.size() <= missing());
  if (done_ < head_bytes_) part = append_head(part);
  if (done_ < head_bytes_) return true;
  if (!std::exchange(selected_, true) && !cut_ && payload_.size() >= receive_buffer_bytes_min) {
    const ReceiveBuffer selected = sink.select_receive_buffer(head_.bytes(), payload_.size());
    if (ended) return false;
    payload_.select(selected);
  }
  const std::size_t filled = done_ - head_bytes_;
  if (!payload_.grow(filled + part.size(), filled)) payload_.discard();
  if (payload_.data() != nullptr && !part.empty()) std::memcpy(payload_.data() + filled, part.data(), part.size());
  done_ += part.size();
  return true;
}

// Appends the bytes that belong to the head. Returns the remaining bytes of `part`.
Bytes MessageAssembly::append_head(Bytes part) {
  const std::size_t bytes = std::min(part.size(), head_bytes_ - done_);
  if (!cut_ && !grow_head(done_ + bytes)) {
    cut_ = true;
    payload_.discard();
    // The first part alone may exceed what is not charged. The sink needs the beginning of the head in any case.
    if (head_.size() == 0) static_cast<void>(grow_head(1));
  }
  if (done_ < head_.size()) {
    std::memcpy(head_.mutable_data() + done_, part.data(), std::min(bytes, head_.size() - done_));
  }
  done_ += bytes;
  return part.subspan(bytes);
}

// Makes room for `needed` bytes of the head by at least doubling the memory. Returns false if the account refuses.
bool MessageAssembly::grow_head(std::size_t needed) {
  if (needed <= head_.size()) return true;
  const std::size_t size = std::min(head_bytes_, std::max({needed, 2 * head_.size(), head_bytes_first}));
  if (!head_charge_.set(size - std::min(size, head_bytes_first))) return false;
  Buffer larger = Buffer::allocate(size);
  if (done_ != 0) std::memcpy(larger.mutable_data(), head_.data(), done_);
  head_ = std::move(larger);
  return true;
}

void MessageAssembly::deliver(MessageSink& sink) {
  assert(missing() == 0);
  // The sink may cause the next message to begin.
  MessageAssembly whole = std::exchange(*this, {});
  whole.head_charge_.reset();
  Message message{.head = whole.head_.bytes(), .payload = {}, .head_block = whole.head_.block(), .cut = whole.cut_};
  whole.payload_.complete(message);
  sink.on_message(message);
}

}  // namespace hawser::transport
