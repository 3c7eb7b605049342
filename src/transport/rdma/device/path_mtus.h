#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <vector>

#include "hawser/time.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

// How long packets may be on the way to a peer where longer ones were lost. Bounded: the entry that ends first makes
// room.
class PathMtus {
 public:
  static constexpr std::size_t entries_max = 256;
  // After so long the way may have changed for the better (RFC 1191, section 6.3).
  static constexpr Duration lifetime = std::chrono::minutes(10);

  // Packets of `current` bytes are lost. False if there are none shorter.
  bool shorten(const Gid& peer, unsigned current, Time now) {
    current = std::min(current, limit(peer, now));
    if (current <= 256) return false;
    std::erase_if(entries_, [&](const Entry& entry) { return entry.peer == peer || entry.until <= now; });
    if (entries_.size() == entries_max) entries_.erase(entries_.begin());
    // What fits a frame of 1500 bytes first: that is what most ways have that do not have what the ports do.
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
  std::vector<Entry> entries_;  // In the order of their ends.
};

}  // namespace hawser::transport::rdma
