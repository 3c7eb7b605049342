#include "rpc/server/held_reply.h"

#include <cstring>
#include <new>

#include "hawser/crc32c.h"

namespace hawser::rpc {

std::byte* HeldReply::begin(const codec::EncodedSize& size, const detail::ReplyExtras& extras) {
  body_ = Buffer::allocate(size.body);
  size_ = size;
  attachment_ = extras.attachment;
  if (extras.metadata != nullptr) metadata_ = *extras.metadata;
  return body_.mutable_data();
}

void HeldReply::end(std::span<const ConstBuffer> pieces, SendCompletion* owner, detail::ReceiveAccount* account) {
  pieces_.assign(pieces.begin(), pieces.end());
  state_ = State::reply;
  if (account != nullptr) charge_.add(*account, bytes(), true);
  if (pieces_.empty()) {
    if (owner != nullptr) owner->on_send_complete();
  } else if (owner != nullptr) {
    owner_ = owner;
  } else {
    copy_pieces();
  }
}

void HeldReply::set_error(const Error& error) {
  error_ = error;
  state_ = State::error;
}

std::uint32_t HeldReply::checksum() const noexcept {
  std::uint32_t checksum = crc32c(body());
  for (const ConstBuffer& piece : pieces_) checksum = crc32c(checksum, {piece.data, piece.size});
  return checksum;
}

void HeldReply::copy_pieces() {
  std::size_t bytes = 0;
  for (const ConstBuffer& piece : pieces_) bytes += piece.size;
  copied_ = Buffer::allocate(bytes);
  std::byte* to = copied_.mutable_data();
  for (const ConstBuffer& piece : pieces_) {
    if (piece.size != 0) std::memcpy(to, piece.data, piece.size);
    to += piece.size;
  }
  attachment_ = copied_.bytes().last(attachment_.size());
  pieces_.assign(1, ConstBuffer{copied_.data(), bytes});
}

void HeldReply::copy_and_release(SendCompletion& owner) noexcept {
  if (owner_ != &owner) return;
  owner_ = nullptr;
  try {
    copy_pieces();
  } catch (const std::bad_alloc&) {
    set_error(Error::of_call(ErrorCode::internal, {}));
  }
}

void HeldReply::release_loan() noexcept {
  if (SendCompletion* const owner = std::exchange(owner_, nullptr)) owner->on_send_complete();
}

}  // namespace hawser::rpc
