#include "transport/rdma/memory/remote_access.h"

namespace hawser::transport::rdma {

void RdmaRemoteAccess::add(QueuePair& pair) {
  const std::lock_guard lock(mutex_);
  pairs_.insert(&pair);
  if (writable_ != 0) pair.allow({.remote_read = true, .remote_write = true});
}

void RdmaRemoteAccess::remove(QueuePair& pair) noexcept {
  const std::lock_guard lock(mutex_);
  pairs_.erase(&pair);
}

void RdmaRemoteAccess::add_region(Access access) noexcept {
  const std::lock_guard lock(mutex_);
  if (access.remote_write && ++writable_ == 1) apply();
}

void RdmaRemoteAccess::remove_region(Access access) noexcept {
  const std::lock_guard lock(mutex_);
  if (access.remote_write && --writable_ == 0) apply();
}

void RdmaRemoteAccess::apply() noexcept {
  for (QueuePair* const pair : pairs_) pair->allow({.remote_read = true, .remote_write = writable_ != 0});
}

}  // namespace hawser::transport::rdma
