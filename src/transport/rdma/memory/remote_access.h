#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_set>

#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

// Access that peers have through the queue pairs of a device's connections. Peers may read, because rendezvous needs
// it. They may write only while the application exposes a region for writing on this device. Thread-safe.
class RdmaRemoteAccess {
 public:
  // Access that each connection with one-sided operations always grants.
  static constexpr Access always{.remote_read = true, .remote_write = false};

  // Adds a connected queue pair that was made with `always`. remove() must be called before it is destroyed.
  void add(QueuePair& pair);
  void remove(QueuePair& pair) noexcept;

  // Called when a region is exposed. When this returns, all queue pairs allow the region's access.
  void add_region(Access access) noexcept;
  // Called when a region is not exposed any more, after its key was revoked.
  void remove_region(Access access) noexcept;

 private:
  void apply() noexcept;

  std::mutex mutex_;
  std::unordered_set<QueuePair*> pairs_;
  std::size_t writable_ = 0;  // Number of regions that are exposed for writing.
};

}  // namespace hawser::transport::rdma
