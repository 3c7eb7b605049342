#include "pipe/receive_block.h"

#include <cassert>
#include <cstring>

namespace hawser::pipe {

bool ReceiveBlock::fit(std::size_t wanted) noexcept {
  if (has_room(wanted)) return true;
  if (block_ == nullptr || block_->size() < wanted || !block_->unique()) return false;
  const std::size_t bytes = held();
  std::memmove(block_->data(), block_->data() + begin_, bytes);
  begin_ = 0;
  end_ = bytes;
  return true;
}

void ReceiveBlock::replace(std::size_t bytes) {
  const std::size_t moved = held();
  assert(bytes >= moved);
  Block* const other = Block::allocate(bytes);
  if (moved != 0) std::memcpy(other->data(), block_->data() + begin_, moved);
  drop();
  block_ = other;
  end_ = moved;
}

void ReceiveBlock::park(std::size_t bytes_max) {
  const std::size_t bytes = held();
  if (bytes == 0) return drop();
  if (bytes <= bytes_max && block_->size() > 2 * bytes && block_->size() > 2 * parked_bytes_max) replace(bytes);
}

}  // namespace hawser::pipe
