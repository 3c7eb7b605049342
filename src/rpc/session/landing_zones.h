#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/registered_buffer.h"

namespace hawser::detail {

// Registered memory for the results of reads over one client. A zone is used again when nobody uses it any more: no
// Buffer, and no device or connection, which may go on after an access was abandoned. One thread.
class LandingZones {
 public:
  static constexpr std::size_t zone_bytes_min = 4096;
  static constexpr std::size_t bytes_limit = std::size_t{1} << 40;

  struct Zone {
    Buffer bytes;         // While it exists, the zone is in use.
    MutableBytes memory;  // The same bytes.
  };

  explicit LandingZones(std::size_t bytes_max) : bytes_max_(std::clamp(bytes_max, zone_bytes_min, bytes_limit)) {}

  Result<Zone> acquire(const Client& client, std::size_t bytes) {
    if (bytes > bytes_max_) {
      return fail(ErrorCode::limit_exceeded, "a read of " + count_text(bytes, "byte") +
                                                 " exceeds ReplicaOptions::landing_bytes_max (" +
                                                 std::to_string(bytes_max_) + "): raise it, or read less");
    }
    const std::size_t size = std::min(std::bit_ceil(std::max(bytes, zone_bytes_min)), bytes_max_);
    Class& zones = classes_[static_cast<std::size_t>(std::bit_width(size - 1))];
    for (std::size_t i = 0; i < zones.buffers.size(); ++i) {
      RegisteredBuffer& next = zones.buffers[zones.next];
      zones.next = (zones.next + 1) % zones.buffers.size();
      if (!next.in_use()) return zone_of(next, bytes);
    }
    if (bytes_ > bytes_max_ - size) release_unused();
    if (bytes_ > bytes_max_ - size) {
      return fail(ErrorCode::overloaded, "reads in progress, and results that are kept, use " + std::to_string(bytes_) +
                                             " of " + count_text(bytes_max_, "byte") +
                                             " (ReplicaOptions::landing_bytes_max): raise it, or await reads first");
    }
    TRY(RegisteredBuffer&& made, RegisteredBuffer::allocate(client, size));
    bytes_ += made.size();
    zones.buffers.push_back(std::move(made));
    return zone_of(zones.buffers.back(), bytes);
  }

 private:
  struct Class {
    std::vector<RegisteredBuffer> buffers;
    std::size_t next = 0;  // The one that has not been used for the longest time.
  };
  static Zone zone_of(const RegisteredBuffer& buffer, std::size_t bytes) {
    return {buffer.share(0, bytes), buffer.memory().first(bytes)};
  }
  void release_unused() {
    for (Class& zones : classes_) {
      std::erase_if(zones.buffers, [&](const RegisteredBuffer& buffer) {
        if (buffer.in_use()) return false;
        bytes_ -= buffer.size();
        return true;
      });
      zones.next = 0;
    }
  }

  std::size_t bytes_max_;
  std::size_t bytes_ = 0;                                                             // The sum of all zones.
  std::vector<Class> classes_ = std::vector<Class>(std::bit_width(bytes_limit) + 1);  // By the logarithm of the size.
};

}  // namespace hawser::detail
