#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "block/store/file.h"
#include "block/store/layout.h"

namespace hawser::block {

// The blocks that are known to be damaged. A start after a crash keeps their checksums, so that they stay damaged, and
// computes those of the other blocks of marked regions. Any thread.
class DamageList {
 public:
  // `side` outlives this.
  DamageList(File& side, const Checksummer& checksummer) noexcept : side_(side), checksummer_(checksummer) {}

  // A sector of the list that is damaged counts as empty.
  Result<void> load();
  std::uint64_t damaged_sectors() const noexcept { return damaged_sectors_; }

  // Returns when the blocks are durable in the list. Fails with EIO if the list has no room for all of them.
  Result<void> add(std::span<const std::uint64_t> blocks);
  // Removes the blocks of [first, end). Returns when this is durable.
  Result<void> remove(std::uint64_t first, std::uint64_t end);
  // True if a block of [first, end) is in the list.
  bool contains(std::uint64_t first, std::uint64_t end) const;
  std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  bool full() const noexcept { return size() == damage_blocks_max; }

 private:
  Result<void> write_dirty();
  bool place(std::uint64_t block);
  void set(std::size_t slot, std::uint64_t block);

  File& side_;
  const Checksummer checksummer_;
  mutable std::mutex mutex_;                    // Held during writes of the list, which are rare.
  std::atomic<std::size_t> size_ = 0;           // Size of `slots_`, for readers without the lock.
  std::map<std::uint64_t, std::size_t> slots_;  // By block.
  std::vector<std::uint64_t> entries_;          // By slot: the number of the block and 1 more, or 0.
  std::size_t free_slot_ = 0;                   // No slot before it is free.
  std::set<std::uint64_t> dirty_;               // Sectors that differ from those on the disk.
  std::uint64_t damaged_sectors_ = 0;
};

}  // namespace hawser::block
