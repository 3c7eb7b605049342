#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/rdma/memory/memory_pool.h"

namespace hawser::transport::rdma {

// Registered memory into which data is read before it is copied to its destination. It is a few ranges, which are
// acquired when they are needed, and the floor: a small range that is available even when the pool has no more memory.
class StagingMemory {
 public:
  static constexpr std::size_t ranges_max = 4;  // Beside the floor.

  // `floor` returns to the pool when this is destroyed. The device must not write then. `range_bytes` is the size of
  // each other range.
  StagingMemory(std::shared_ptr<MemoryPool> pool, const RegisteredMemory& floor, std::size_t range_bytes);
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;
  ~StagingMemory();

  // Returns the number of a free range, which is not 0. Returns 0 if all are in use. The floor is returned only while
  // there is no other range.
  std::size_t acquire();
  const RegisteredMemory& memory(std::size_t number) const noexcept { return ranges_[number - 1].memory; }
  void release(std::size_t number) noexcept { ranges_[number - 1].busy = false; }
  // Returns all ranges except the floor to the pool. None may be in use by the device.
  void shrink() noexcept;

 private:
  struct Range {
    RegisteredMemory memory;
    bool busy = false;
  };

  const std::shared_ptr<MemoryPool> pool_;
  const std::size_t range_bytes_;
  std::vector<Range> ranges_;  // The first is the floor.
};

}  // namespace hawser::transport::rdma
