#include "protocol/http/collected_body.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rpc/port/announced_memory.h"

namespace hawser::protocol::http {

std::size_t CollectedBody::size_for(std::size_t bytes, std::uint64_t announced,
                                    const detail::ReceiveAccount& account) const noexcept {
  if (bytes <= capacity()) return capacity();
  const std::size_t size = std::max({bytes, 2 * capacity(), first_bytes_});
  if (announced < bytes) return size;
  const auto whole = static_cast<std::size_t>(announced);
  return rpc::is_worth_its_memory(account, whole, bytes) ? whole : std::min(size, whole);
}

void CollectedBody::grow(std::size_t capacity) {
  Buffer larger = Buffer::allocate(capacity);
  if (bytes_ != 0) std::memcpy(larger.mutable_data(), memory_.data(), bytes_);
  memory_ = std::move(larger);
}

void CollectedBody::append(Bytes piece) noexcept {
  if (piece.empty()) return;
  std::memcpy(memory_.mutable_data() + bytes_, piece.data(), piece.size());
  bytes_ += piece.size();
}

MutableBytes CollectedBody::space(std::uint64_t bytes_max) noexcept {
  const std::size_t room = capacity() - bytes_;
  return memory_.mutable_bytes().subspan(bytes_, static_cast<std::size_t>(std::min<std::uint64_t>(room, bytes_max)));
}

void CollectedBody::clear() noexcept {
  memory_ = {};
  bytes_ = 0;
}

}  // namespace hawser::protocol::http
