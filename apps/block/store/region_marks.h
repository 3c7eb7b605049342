#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "block/store/file.h"
#include "block/store/layout.h"

namespace hawser::block {

// The write-intent bitmap: the regions whose checksums may not agree with their data after a crash. A mark is durable
// before the first write of its region. Any thread.
class RegionMarks {
 public:
  // `side` outlives this.
  RegionMarks(File& side, const Checksummer& checksummer) noexcept : side_(side), checksummer_(checksummer) {}

  // Reads the marks of a volume of `size` bytes, and returns the marked regions. They stay marked until clear().
  // A sector of marks that is damaged counts as without marks: the blocks of its regions are verified as they are.
  Result<std::vector<std::uint64_t>> load(std::uint64_t size);
  std::uint64_t damaged_sectors() const noexcept { return damaged_sectors_; }

  // Returns when the marks of the regions [first, end) are durable. After a success, the caller calls end_write().
  Result<void> begin_write(std::uint64_t first, std::uint64_t end);
  // As begin_write(), or returns false and does nothing if a mark is not durable yet or, with `with_space`, not
  // reserved(). Most writes of a volume in use need no more than this.
  bool try_begin_write(std::uint64_t first, std::uint64_t end, bool with_space) noexcept;
  // `keep`: the regions stay marked until the volume is opened again, because a checksum is wrong.
  void end_write(std::uint64_t first, std::uint64_t end, bool keep) noexcept;
  // Whether the checksums of all these regions have their space in the side file. A region is so from
  // set_reserved(first, end, true) on, as long as it is marked.
  bool reserved(std::uint64_t first, std::uint64_t end) const noexcept;
  void set_reserved(std::uint64_t first, std::uint64_t end, bool reserved) noexcept;

  // Begins a flush, and returns its number for clear().
  std::uint64_t begin_flush() noexcept;
  // Clears marks of regions without a write in progress. The caller has synced data and checksums after the
  // begin_flush() that returned `flush`. `all`: all regions whose writes had ended at that time. Otherwise those that
  // had no write since the flush before, so that a region in use keeps its mark.
  // The cleared marks are written and not synced: a mark that comes back costs time at the next start only.
  void clear(std::uint64_t flush, bool all);
  // After the volume has got another size, with no write in progress.
  void resize(std::uint64_t size);
  std::size_t marked() const noexcept;
  bool sync_failed() const noexcept;

 private:
  struct Region {
    std::uint32_t writers = 0;
    bool durable = false;
    bool kept = false;
    bool reserved = false;
    std::uint64_t last_flush = 0;  // Number of the flush that comes after the last write.
  };

  Result<void> mark(std::unique_lock<std::mutex>& lock, std::uint64_t first, std::uint64_t end);
  Result<void> write_dirty(std::unique_lock<std::mutex>& lock, bool sync);
  void change(std::uint64_t region, bool marked);
  bool durable(std::uint64_t first, std::uint64_t end) const;
  void end_writers(std::uint64_t first, std::uint64_t end) noexcept;

  File& side_;
  const Checksummer checksummer_;
  mutable std::mutex mutex_;
  std::condition_variable written_;
  bool writing_ = false;  // A thread writes sectors, without the lock.
  std::optional<Error> sync_error_;
  std::uint64_t flush_ = 1;
  std::uint64_t damaged_sectors_ = 0;
  std::vector<std::byte> sectors_;  // The marks as they are to be on the disk, without checksums.
  std::set<std::uint64_t> dirty_;   // Sectors that differ from those on the disk.
  std::unordered_map<std::uint64_t, Region> regions_;
};

}  // namespace hawser::block
