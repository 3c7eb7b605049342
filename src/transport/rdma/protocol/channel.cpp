#include "transport/rdma/protocol/channel.h"

namespace hawser::transport::rdma {

Result<Channel::Memory> Channel::Memory::take(MemoryPool& pool, std::size_t chunk_bytes) {
  using Use = MemoryPool::Use;
  const auto chunk = pool.take(chunk_bytes, Use::connection);
  if (!chunk) return std::unexpected(chunk.error());
  const auto control = pool.take(Sender::control_bytes, Use::connection);
  if (!control) {
    pool.give(*chunk);
    return std::unexpected(control.error());
  }
  const auto staging = pool.take(Receiver::staging_floor_bytes, Use::connection);
  if (!staging) {
    pool.give(*chunk);
    pool.give(*control);
    return std::unexpected(staging.error());
  }
  return Memory{*chunk, *control, *staging};
}

void Channel::Memory::give(MemoryPool& pool) const noexcept {
  pool.give(chunk);
  pool.give(control);
  pool.give(staging);
}

}  // namespace hawser::transport::rdma
