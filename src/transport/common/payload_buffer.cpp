#include "transport/common/payload_buffer.h"

#include <cassert>
#include <cstring>
#include <new>
#include <utility>

namespace hawser::transport {
namespace {

// Returns the smallest step of a payload of `size` bytes that has room for `bytes`. Each step is a quarter of the next
// one, and the last step is the whole payload. Few bytes are therefore copied from one step to the next, and few are
// held twice meanwhile.
std::size_t step(std::size_t size, std::size_t bytes) noexcept {
  constexpr std::size_t factor = PayloadBuffer::step_factor;
  std::size_t room = size;
  while (room > PayloadBuffer::first_step_bytes && (room + factor - 1) / factor >= bytes) {
    room = (room + factor - 1) / factor;
  }
  return room;
}

}  // namespace

void PayloadBuffer::select(const ReceiveBuffer& selected) noexcept {
  switch (selected.kind) {
    case ReceiveBuffer::Kind::own: break;
    case ReceiveBuffer::Kind::given:
      assert(selected.memory.size() >= size_);
      guard_ = selected.guard;
      if (data_ != nullptr) {
        wanted_ = selected.memory.data();
      } else {
        data_ = selected.memory.data();
        room_ = size_;
        given_ = true;
      }
      break;
    case ReceiveBuffer::Kind::discard: discard(); break;
  }
}

bool PayloadBuffer::grow(std::size_t bytes, std::size_t filled) {
  if (discarded_ || bytes <= room_) return true;
  const hawser::detail::ReceiveAccount* const account = charge_.account();
  const bool at_once = account == nullptr || size_ <= first_step_bytes || (room_ == 0 && account->plenty(size_));
  return resize(at_once ? size_ : step(size_, bytes), filled);
}

bool PayloadBuffer::resize(std::size_t room, std::size_t filled) {
  const std::size_t before = own_.block() == nullptr ? 0 : own_.block()->size();
  // Old and new memory are both held while the contents are copied.
  if (!charge_.set(before + room)) return false;
  try {
    Buffer larger = Buffer::allocate(room);
    if (filled != 0) std::memcpy(larger.mutable_data(), data_, filled);
    own_ = std::move(larger);
  } catch (const std::bad_alloc&) {
    charge_.set_always(before);
    return false;
  }
  charge_.set_always(own_.block()->size());
  if (std::exchange(given_, false)) wanted_ = data_;
  data_ = own_.mutable_data();
  room_ = room;
  return true;
}

bool PayloadBuffer::enter() noexcept {
  if (guard_ == nullptr || entered_ || (!given_ && wanted_ == nullptr)) return true;
  entered_ = guard_->enter();
  if (!entered_) discard();
  return entered_;
}

void PayloadBuffer::adopt(Buffer memory) noexcept {
  own_ = std::move(memory);
  data_ = own_.mutable_data();
  room_ = size_;
}

void PayloadBuffer::replace() {
  own_ = Buffer::allocate(size_);
  data_ = own_.mutable_data();
}

void PayloadBuffer::discard() noexcept {
  leave();
  guard_ = nullptr;
  discarded_ = true;
  data_ = wanted_ = nullptr;
  room_ = 0;
  given_ = false;
  own_ = {};
  charge_.reset();
}

void PayloadBuffer::revoke(const std::byte* memory) noexcept {
  if (revokes(memory)) discard();
}

void PayloadBuffer::complete(Message& message) noexcept {
  charge_.reset();
  message.discarded = discarded_;
  if (discarded_ || data_ == nullptr) return;
  if (wanted_ != nullptr) {
    message.discarded = !enter();
    if (message.discarded) return;
    std::memcpy(wanted_, data_, size_);
    leave();
  }
  message.payload = {wanted_ != nullptr ? wanted_ : data_, size_};
  message.payload_block = given_ || wanted_ != nullptr ? nullptr : own_.block();
}

}  // namespace hawser::transport
