#include "transport/rdma/protocol/channel.h"

#include "base/decimal_text.h"
#include "base/try.h"

namespace hawser::transport::rdma {

Result<RdmaChannel::Memory> RdmaChannel::Memory::acquire(MemoryPool& pool, std::size_t chunk_bytes) {
  using Use = MemoryPool::Use;
  TRY(const auto& chunk, pool.acquire(chunk_bytes, Use::connection));
  const auto control = pool.acquire(ControlSlots::bytes, Use::connection);
  if (!control) {
    pool.release(chunk);
    return fail(control.error());
  }
  const auto staging = pool.acquire(RdmaReceiver::staging_floor_bytes, Use::connection);
  if (!staging) {
    pool.release(chunk);
    pool.release(*control);
    return fail(staging.error());
  }
  return Memory{chunk, *control, *staging};
}

void RdmaChannel::Memory::release(MemoryPool& pool) const noexcept {
  pool.release(chunk);
  pool.release(control);
  pool.release(staging);
}

std::string RdmaChannel::details() const {
  const RdmaCredits& credits = work_queue_.credits;
  const SendSlots& slots = work_queue_.slots;
  return std::to_string(credits.available()) + " of " + count_text(credits.peer_receives(), "credit") +
         " left; the peer has " + std::to_string(credits.usable()) + " of " + std::to_string(credits.own_receives()) +
         "; " + std::to_string(slots.all() - slots.free()) + " of " + count_text(slots.all(), "send request") +
         " posted";
}

}  // namespace hawser::transport::rdma
