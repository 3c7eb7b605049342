#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <vector>

#include "hawser/time.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

// Remembers the packet length towards peers to which longer packets were lost. Bounded: the entry that expires first
// makes room for a new one.
class PathMtus {
 public:
  static constexpr std::size_t entries_max = 256;
  // After this time the path may have improved (RFC 1191, section 6.3).
  static constexpr Duration lifetime = std::chrono::minutes(10);

  // Packets of `current` bytes were lost. False if there is no shorter length.
  bool shorten(const Gid& peer, unsigned current, Time now) {
    current = std::min(current, limit(peer, now));
    if (current <= 256) return false;
    std::erase_if(entries_, [&](const Entry& entry) { return entry.peer == peer || entry.until <= now; });
    if (entries_.size() == entries_max) entries_.erase(entries_.begin());
    // 1024 first, because it fits into an Ethernet frame of 1500 bytes. Most paths with a smaller MTU than their ports
    // have that one.
    entries_.push_back({peer, current > 1024 ? 1024 : current / 2, now + lifetime});
    return true;
  }
  unsigned limit(const Gid& peer, Time now) const noexcept {
    for (const Entry& entry : entries_) {
      if (entry.peer == peer && now < entry.until) return entry.bytes;
    }
    return std::numeric_limits<unsigned>::max();
  }

 private:
  struct Entry {
    Gid peer;
    unsigned bytes;
    Time until;
  };
  std::vector<Entry> entries_;  // Sorted by expiry.
};

}  // namespace hawser::transport::rdma
