#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_set>

#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

// What the peers of a device's connections may do by their queue pairs. They may read, as rendezvous need it; they may
// write only while the application exposes a region for writing on this device. Thread-safe.
class RemoteAccess {
 public:
  // Of every connection with one-sided operations.
  static constexpr Access always{.remote_read = true, .remote_write = false};

  // A connected queue pair, made with `always`, until remove(), which must come before it is destroyed.
  void add(QueuePair& pair);
  void remove(QueuePair& pair) noexcept;

  // A region is exposed: when this returns, all queue pairs allow what it allows.
  void add_region(Access access) noexcept;
  // It is not any more, after its key was revoked.
  void remove_region(Access access) noexcept;

 private:
  void apply() noexcept;

  std::mutex mutex_;
  std::unordered_set<QueuePair*> pairs_;
  std::size_t writable_ = 0;  // Regions.
};

}  // namespace hawser::transport::rdma
