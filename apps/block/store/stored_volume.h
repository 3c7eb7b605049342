#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "block/store/checksum_table.h"
#include "block/store/damage_list.h"
#include "block/store/file.h"
#include "block/store/layout.h"
#include "block/store/range_lock.h"
#include "block/store/region_marks.h"
#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::block {

struct StoredVolumeOptions {
  bool read_only = false;
  // False: the table only says which blocks have data, nothing is verified, and scrub() fails. For volumes in memory.
  bool checksums = true;
  // Regions of 1 MiB whose checksums are computed anew after a crash. Beyond it, a write syncs and clears marks first.
  std::size_t marked_regions_max = 4096;
  // Marks of regions that are not written any more are cleared at each such flush.
  unsigned flushes_per_clear = 16;
};

// Not in the name of a volume.
inline constexpr char unique_name_separator = '@';

// Requests since the start that did not fail. Zeros that are written and discards do not count.
struct VolumeTraffic {
  std::uint64_t reads = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t writes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t flushes = 0;  // A flush counts when it begins, also that of a write with `fua`. 0 if read-only.
};

struct VolumeInfo {
  std::uint64_t size = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t marked_regions = 0;
  std::uint64_t recovered_blocks = 0;  // Whose checksums were computed anew at the start.
  std::uint64_t mismatches = 0;        // Reads of damaged blocks since the start.
  std::uint64_t known_damaged = 0;     // Blocks in the list of damaged blocks.
  VolumeTraffic traffic = {};
  bool preallocated = false;
  bool read_only = false;
  // A message for an operator, such as why the volume is read-only. Empty: nothing.
  std::string warning = {};
};

// A block that is damaged.
struct DamagedBlock {
  std::uint64_t block = 0;
  std::uint32_t checksum = 0;  // Computed from the data.
  std::uint32_t expected = 0;  // 0: the block was never written or was discarded, and its data are not zeros.
};

struct ScrubReport {
  static constexpr std::size_t damaged_listed_max = 1000;
  std::uint64_t blocks = 0;   // Verified.
  std::uint64_t damaged = 0;  // Blocks that could not be read count too.
  std::vector<DamagedBlock> listed = {};
};

// A volume in two files. Every function blocks; any thread may call any of them. Each request is atomic against others
// that overlap it while the server runs. Errors are those of store_error.h.
class StoredVolume {
 public:
  // Writes the files of a new volume, which are empty. The caller syncs their folder.
  static Result<void> format(VolumeFiles& files, std::uint64_t size, const Uuid& uuid, bool preallocate);
  // Opens a volume. After a crash this reads the regions that were written then.
  static Result<std::unique_ptr<StoredVolume>> open(std::string name, VolumeFiles files, StoredVolumeOptions options);
  StoredVolume(const StoredVolume&) = delete;
  StoredVolume& operator=(const StoredVolume&) = delete;
  // A volume that was not closed is opened as after a crash.
  ~StoredVolume();

  const std::string& name() const noexcept { return name_; }
  // NAME@ID. The id is that of the superblock, so that no other volume ever has it.
  const std::string& unique_name() const noexcept { return unique_name_; }
  std::uint64_t size() const noexcept { return size_.load(std::memory_order_acquire); }

  // Any offset and any size within the volume. A damaged block is an error, and its bytes are not returned.
  Result<void> read(std::uint64_t offset, MutableBytes into);
  // As read(), or nothing if it would wait for another request.
  std::optional<Result<void>> try_read(std::uint64_t offset, MutableBytes into);
  // `fua`: the bytes are durable when this returns. A request that is `abandoned` before it has its range changes
  // nothing: ECANCELED. Newer requests may have had the range before.
  Result<void> write(std::uint64_t offset, Bytes bytes, bool fua = false, const std::stop_token& abandoned = {});
  // As write(), or nothing if it would wait for another request. The volume is in memory: a disk takes its time.
  std::optional<Result<void>> try_write(std::uint64_t offset, Bytes bytes, bool fua = false);
  // The writes that ended before the call are durable when this returns.
  Result<void> flush();
  // As flush(), or nothing if it would wait for another request. The volume is in memory.
  std::optional<Result<void>> try_flush();
  // Whole blocks of the range become zeros, and their space is free. Other bytes of the range do not change.
  Result<void> discard(std::uint64_t offset, std::uint64_t bytes, const std::stop_token& abandoned = {});
  // All bytes of the range become zeros. `deallocate`: the space of whole blocks is free.
  Result<void> write_zeroes(std::uint64_t offset, std::uint64_t bytes, bool deallocate, bool fua = false,
                            const std::stop_token& abandoned = {});
  // Zeros from `offset` on, or data: the state of the blocks there, and the end of the blocks with the same state, at
  // most `end`.
  struct Extent {
    std::uint64_t end = 0;
    bool zeros = false;
  };
  Result<Extent> extent(std::uint64_t offset, std::uint64_t end);
  // The bytes behind a smaller size are lost. Waits for all requests in progress.
  Result<void> resize(std::uint64_t size);
  // Verifies the blocks that begin within [offset, offset + bytes).
  Result<ScrubReport> scrub(std::uint64_t offset, std::uint64_t bytes);
  Result<VolumeInfo> info() const;
  // Flushes, and ends the volume: later requests fail with ENODEV. The next start reads no region.
  Result<void> close();
  // After close(), when the files have been removed: their space is free, also if somebody still has this object.
  void release_removed();

 private:
  static constexpr std::size_t chunk_bytes = region_bytes;

  StoredVolume(std::string name, VolumeFiles files, const Superblock& superblock, StoredVolumeOptions options);

  using Entries = std::array<std::uint32_t, region_blocks>;

  // Recovery: volume_recovery.cpp.
  struct FoundSuperblock {
    Superblock superblock;
    bool in_both_slots = false;
  };
  // The checksums of a region's blocks: those of the side file, and those that a start gives them.
  struct FoundRegion {
    std::uint64_t first = 0;
    std::size_t blocks = 0;
    Entries before = {};
    Entries entries = {};
    std::vector<std::uint64_t> unreadable = {};
    std::span<const std::uint32_t> computed() const { return std::span(entries).first(blocks); }
  };
  static Result<FoundSuperblock> read_superblock(const std::string& name, File& side);
  static Result<void> write_superblock(File& side, const Superblock& superblock);
  Result<void> replace_superblock(std::uint64_t size, std::uint64_t resize_size);
  Result<void> prepare(bool superblock_in_both_slots);
  Result<void> check_files() const;
  Result<void> cut_files();
  Result<void> recover(const std::vector<std::uint64_t>& marked);
  Result<void> recover_in_memory(const std::vector<std::uint64_t>& marked);
  Result<FoundRegion> find_region(std::uint64_t region);
  Result<void> grow(std::uint64_t size);
  void become_read_only(const std::string& reason);
  void warn(const std::string& text);

  Result<void> check(std::uint64_t offset, std::uint64_t bytes, bool write) const;
  Result<void> failed_state() const;
  Result<void> make_room();
  Result<void> sync_all(bool all);
  Result<void> flush_locked();
  std::unexpected<Error> break_down(const Error& error);
  std::unexpected<Error> mismatch(const DamagedBlock& block);

  // Space of checksums: see RegionMarks::reserved().
  enum class ChecksumSpace : std::uint8_t { reserve, free };
  template <class Change>
  Result<void> change(std::uint64_t offset, std::uint64_t bytes, ChecksumSpace space, Change&& apply);
  Result<void> write_locked(std::uint64_t offset, Bytes bytes);
  Result<void> begin_change(std::uint64_t first_region, std::uint64_t end_region, ChecksumSpace space);
  Result<void> reserve_checksums(std::uint64_t first_region, std::uint64_t end_region);
  void note_damage(std::span<const std::uint64_t> blocks);
  Result<void> drop_repaired(std::uint64_t first, std::uint64_t end);
  Result<void> end_damage(std::uint64_t first, std::uint64_t end);
  Result<void> read_blocks(std::uint64_t first, MutableBytes into);
  Result<void> read_locked(std::uint64_t offset, MutableBytes into);
  Result<void> read_part(std::uint64_t offset, MutableBytes into);
  Result<void> write_part(std::uint64_t offset, Bytes bytes, bool& keep);
  Result<void> write_blocks(std::uint64_t first, Bytes bytes, bool& keep);
  Result<void> zero_part(std::uint64_t offset, std::uint64_t bytes, bool deallocate, bool& keep);
  Result<void> zero_blocks(std::uint64_t first, std::uint64_t end, bool deallocate, bool& keep);
  bool settle(std::uint64_t first, std::uint64_t end, std::span<const std::uint32_t> entries) noexcept;
  bool is_torn(std::uint64_t block, std::uint32_t found);
  Result<void> scrub_chunk(std::uint64_t first, std::uint64_t end, ScrubReport& report);

  const std::string name_;
  const std::string unique_name_;
  const StoredVolumeOptions options_;
  const VolumeFiles files_;
  const Checksummer checksummer_;
  Superblock superblock_;  // Changed by resize(), which has the whole range.
  ChecksumTable checksums_;
  RegionMarks marks_;
  DamageList damage_;
  RangeLock ranges_;
  std::atomic<std::uint64_t> size_;
  std::atomic<std::uint64_t> mismatches_ = 0;
  std::atomic<std::uint64_t> flushes_ = 0;
  struct alignas(64) Requests {
    void add(std::uint64_t size) noexcept {
      count.fetch_add(1, std::memory_order_relaxed);
      bytes.fetch_add(size, std::memory_order_relaxed);
    }
    std::atomic<std::uint64_t> count = 0;
    std::atomic<std::uint64_t> bytes = 0;
  };
  Requests reads_;
  Requests writes_;
  std::atomic<bool> closed_ = false;
  std::atomic<bool> broken_ = false;  // A sync failed: `why_broken_` is set, and nothing is written any more.
  std::uint64_t recovered_blocks_ = 0;
  // Set before the first request.
  bool read_only_;
  std::string read_only_reason_;  // Begins with ": " if it is not empty.
  std::string warning_;
  mutable std::mutex mutex_;
  std::string why_broken_;
};

}  // namespace hawser::block
