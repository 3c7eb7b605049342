#include "block/nbd/request_admission.h"

#include <utility>

namespace hawser::block::nbd {

Task<bool> RequestAdmission::acquire_slot(PendingRequest& pending, std::stop_token stopped) {
  pending.slot = slots_.try_acquire();
  if (pending.slot) co_return true;
  Result<Permit> slot = co_await slots_.acquire(1, std::move(stopped));
  if (slot) pending.slot = std::move(*slot);
  co_return slot.has_value();
}

Task<bool> RequestAdmission::acquire_memory(PendingRequest& pending, std::size_t bytes, std::stop_token stopped) {
  const std::size_t permits = memory_permits(bytes);
  pending.bytes = bytes_.try_acquire(permits);
  if (!pending.bytes) {
    Result<Permit> granted = co_await bytes_.acquire(permits, stopped);
    if (!granted) co_return false;
    pending.bytes = std::move(*granted);
  }
  pending.memory = memory_.try_acquire(permits);
  if (pending.memory) co_return true;
  waiting_ = Waiting{.since = loop_.now(), .bytes = permitted_bytes(bytes)};
  Result<Permit> granted = co_await memory_.acquire(permits, std::move(stopped));
  waiting_.reset();
  if (granted) pending.memory = std::move(*granted);
  co_return granted.has_value();
}

}  // namespace hawser::block::nbd
