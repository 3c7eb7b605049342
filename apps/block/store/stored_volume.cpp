#include "block/store/stored_volume.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "block/store/aligned_buffer.h"
#include "block/store/store_error.h"

namespace hawser::block {
namespace {

bool accepts(const File& file, const void* address) noexcept {
  return file.accepts_every_address() || reinterpret_cast<std::uintptr_t>(address) % file_alignment == 0;
}

constexpr std::uint64_t block_of(std::uint64_t offset) noexcept { return offset / block_bytes; }
constexpr std::uint64_t block_end_of(std::uint64_t end) noexcept { return (end + block_bytes - 1) / block_bytes; }

std::string hexadecimal(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", value);
  return text;
}

std::string with_id(const std::string& name, const Uuid& uuid) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = name + unique_name_separator;
  for (const std::byte byte : uuid) {
    text += digits[std::to_integer<std::size_t>(byte >> 4)];
    text += digits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

// A write that has no memory has failed in its midst.
template <class Write>
Result<void> caught(Write&& write) {
  try {
    return write();
  } catch (const std::bad_alloc&) {
    return store_fail(ENOMEM, "the machine has no memory for a write of a volume");
  }
}

// Ends a write of RegionMarks, also if the write throws.
struct WriteInProgress {
  RegionMarks& marks;
  const std::uint64_t first_region;
  const std::uint64_t end_region;
  bool keep = false;
  ~WriteInProgress() { marks.end_write(first_region, end_region, keep); }
};

}  // namespace

StoredVolume::StoredVolume(std::string name, VolumeFiles files, const Superblock& superblock,
                           StoredVolumeOptions options)
    : name_(std::move(name)),
      unique_name_(with_id(name_, superblock.uuid)),
      options_(options),
      files_(std::move(files)),
      checksummer_(superblock.uuid, options.checksums),
      superblock_(superblock),
      checksums_(*files_.side),
      marks_(*files_.side, checksummer_),
      damage_(*files_.side, checksummer_),
      size_(superblock.size),
      read_only_(options.read_only) {}

StoredVolume::~StoredVolume() = default;

// ---- States ----

Result<void> StoredVolume::failed_state() const {
  if (closed_) return store_fail(ENODEV, "volume " + name_ + " has been closed or removed");
  if (!broken_) return {};
  const std::lock_guard lock(mutex_);
  return store_fail(EIO, "volume " + name_ + " is not written until the server restarts: " + why_broken_);
}

// After a failed sync nobody knows which writes are durable. A later sync may succeed without them.
std::unexpected<Error> StoredVolume::break_down(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!broken_) why_broken_ = error.text;
  broken_ = true;
  return std::unexpected(error);
}

// Called with the range locked, so that the size does not change.
Result<void> StoredVolume::check(std::uint64_t offset, std::uint64_t bytes, bool write) const {
  if (closed_ || (write && broken_)) return failed_state();
  if (write && read_only_) {
    return store_fail(EROFS, "volume " + name_ + " is read-only" + read_only_reason_);
  }
  const std::uint64_t size = size_;
  if (offset > size || bytes > size - offset) {
    return store_fail(write ? ENOSPC : EINVAL, "the range of " + std::to_string(bytes) + " bytes at " +
                                                   std::to_string(offset) + " exceeds volume " + name_ + " of " +
                                                   std::to_string(size) + " bytes");
  }
  return {};
}

std::unexpected<Error> StoredVolume::mismatch(const DamagedBlock& block) {
  ++mismatches_;
  return store_fail(EIO, "block " + std::to_string(block.block) + " of volume " + name_ +
                             " is damaged: its checksum is " + hexadecimal(block.checksum) + ", and " +
                             hexadecimal(block.expected) + " is expected");
}

// Blocks that are known to be damaged stay so after a crash. If they cannot be noted, the volume is not written any
// more, and its marks are cleared as far as possible: a start verifies regions without marks as they are.
void StoredVolume::note_damage(std::span<const std::uint64_t> blocks) {
  if (read_only_ || blocks.empty()) return;
  const Result<void> noted = damage_.add(blocks);
  if (noted || broken_) return;
  if (sync_all(true)) (void)files_.side->sync();
  (void)break_down(noted.error());
}

// The blocks of [first, end) have been written whole. They leave the list when their data are durable.
Result<void> StoredVolume::end_damage(std::uint64_t first, std::uint64_t end) {
  if (!damage_.contains(first, end)) return {};
  Result<void> ended = files_.data->sync();
  if (ended) ended = damage_.remove(first, end);
  if (!ended) return break_down(ended.error());
  return ended;
}

// Blocks of the list that have their bytes again leave it before they change. If they stayed, a start after a crash
// would not compute their checksums, and a write that was cut would make them an error.
Result<void> StoredVolume::drop_repaired(std::uint64_t first, std::uint64_t end) {
  if (!damage_.contains(first, end)) return {};
  AlignedBuffer buffer(block_bytes);
  for (std::uint64_t block = first; block < end; ++block) {
    if (!damage_.contains(block, block + 1)) continue;
    std::uint32_t entry = 0;
    if (!checksums_.read(block, std::span(&entry, 1))) continue;
    if (!files_.data->read(block * block_bytes, buffer.bytes())) continue;
    if (checksummer_.entry(block, buffer.bytes()) != entry) continue;
    if (Result<void> removed = damage_.remove(block, block + 1); !removed) return break_down(removed.error());
  }
  return {};
}

// ---- Reading ----

// Reads and verifies whole blocks into memory that the file accepts, at most chunk_bytes.
Result<void> StoredVolume::read_blocks(std::uint64_t first, MutableBytes into) {
  if (!options_.checksums) return files_.data->read(first * block_bytes, into);
  Entries memory;
  const std::span entries = std::span(memory).first(into.size() / block_bytes);
  if (Result<void> read = checksums_.read(first, entries); !read) return read;
  if (Result<void> read = files_.data->read(first * block_bytes, into); !read) return read;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // Also of a block without data: its entry may be what is lost.
    const std::uint32_t found = checksummer_.entry(first + i, into.subspan(i * block_bytes, block_bytes));
    if (found == entries[i]) continue;
    note_damage(std::array{first + i});
    return mismatch({first + i, found, entries[i]});
  }
  return {};
}

// Reads at most chunk_bytes of blocks.
Result<void> StoredVolume::read_part(std::uint64_t offset, MutableBytes into) {
  const std::uint64_t first = block_of(offset);
  const std::uint64_t end = block_end_of(offset + into.size());
  if (offset % block_bytes == 0 && into.size() % block_bytes == 0 && accepts(*files_.data, into.data())) {
    return read_blocks(first, into);
  }
  AlignedBuffer buffer((end - first) * block_bytes);
  if (Result<void> read = read_blocks(first, buffer.bytes()); !read) return read;
  std::memcpy(into.data(), buffer.bytes().data() + offset % block_bytes, into.size());
  return {};
}

Result<void> StoredVolume::read(std::uint64_t offset, MutableBytes into) {
  if (offset > volume_bytes_max || into.size() > volume_bytes_max) return check(offset, into.size(), false);
  const RangeLock::Held held =
      ranges_.lock(block_of(offset), block_end_of(offset + into.size()), RangeLock::Mode::shared);
  return read_locked(offset, into);
}

std::optional<Result<void>> StoredVolume::try_read(std::uint64_t offset, MutableBytes into) {
  if (offset > volume_bytes_max || into.size() > volume_bytes_max) return check(offset, into.size(), false);
  const RangeLock::Held held =
      ranges_.try_lock(block_of(offset), block_end_of(offset + into.size()), RangeLock::Mode::shared);
  if (!held) return std::nullopt;
  return read_locked(offset, into);
}

Result<void> StoredVolume::read_locked(std::uint64_t offset, MutableBytes into) {
  if (Result<void> checked = check(offset, into.size(), false); !checked) return checked;
  const std::uint64_t bytes = into.size();
  while (!into.empty()) {
    const std::size_t part = std::min<std::uint64_t>(into.size(), chunk_bytes - offset % block_bytes);
    if (Result<void> read = read_part(offset, into.first(part)); !read) return read;
    into = into.subspan(part);
    offset += part;
  }
  reads_.add(bytes);
  return {};
}

// ---- Writing ----

// Clears marks if there are too many for one more.
Result<void> StoredVolume::make_room() {
  if (marks_.marked() < options_.marked_regions_max) return {};
  return sync_all(true);
}

// Without space for its checksums, a start after a crash could not write them to a full disk.
Result<void> StoredVolume::reserve_checksums(std::uint64_t first_region, std::uint64_t end_region) {
  const std::uint64_t begin = entry_offset(first_region * region_blocks);
  const std::uint64_t end = std::min(entry_offset(end_region * region_blocks), side_bytes(superblock_.size));
  Result<void> reserved = files_.side->allocate(begin, end - begin);
  // Not all file systems reserve space.
  if (!reserved && reserved.error().application_code == EOPNOTSUPP) return {};
  return reserved;
}

Result<void> StoredVolume::begin_change(std::uint64_t first_region, std::uint64_t end_region, ChecksumSpace space) {
  const bool reserve = space == ChecksumSpace::reserve && !superblock_.preallocated;
  if (space == ChecksumSpace::reserve && marks_.try_begin_write(first_region, end_region, reserve)) return {};
  if (Result<void> room = make_room(); !room) return room;
  const bool reserved = reserve && marks_.reserved(first_region, end_region);
  if (reserve && !reserved) {
    if (Result<void> done = reserve_checksums(first_region, end_region); !done) return done;
  }
  if (Result<void> marked = marks_.begin_write(first_region, end_region); !marked) {
    if (marks_.sync_failed()) return break_down(marked.error());
    return marked;
  }
  if (reserve != reserved || space == ChecksumSpace::free) marks_.set_reserved(first_region, end_region, reserve);
  return {};
}

// Runs apply(offset, bytes, keep) for each part of the range that lies within marked_regions_max regions. The whole
// range is locked.
template <class Change>
Result<void> StoredVolume::change(std::uint64_t offset, std::uint64_t bytes, ChecksumSpace space, Change&& apply) {
  if (Result<void> checked = check(offset, bytes, true); !checked) return checked;
  const std::uint64_t part_max = std::max<std::uint64_t>(options_.marked_regions_max / 4, 1) * region_bytes;
  const std::uint64_t end = offset + bytes;
  while (offset < end) {
    const std::uint64_t part = std::min(end - offset, part_max - offset % region_bytes);
    const std::uint64_t first_region = offset / region_bytes;
    const std::uint64_t end_region = (offset + part + region_bytes - 1) / region_bytes;
    if (Result<void> begun = begin_change(first_region, end_region, space); !begun) return begun;
    WriteInProgress write{marks_, first_region, end_region};
    Result<void> applied = apply(offset, part, write.keep);
    if (!applied) return applied;
    offset += part;
  }
  return {};
}

// A block whose write has failed, with the checksum that its data have: neither the old data nor the new ones.
bool StoredVolume::is_torn(std::uint64_t block, std::uint32_t found) {
  std::uint32_t before = 0;
  return checksums_.read(block, std::span(&before, 1)) && before != found;
}

// After a failed write of blocks whose entries become `entries` (none: zeros), each block is old, new or torn. A block
// that is new gets its entry. A block that is torn is reported as damaged until it is written again: it cannot be
// distinguished from one that was damaged before. Returns false if an entry could not be written.
bool StoredVolume::settle(std::uint64_t first, std::uint64_t end, std::span<const std::uint32_t> entries) noexcept {
  try {
    AlignedBuffer buffer(block_bytes);
    std::vector<std::uint64_t> torn;
    bool settled = true;
    for (std::uint64_t block = first; block < end; ++block) {
      if (!files_.data->read(block * block_bytes, buffer.bytes())) continue;
      const std::uint32_t entry = entries.empty() ? 0 : entries[block - first];
      const std::uint32_t found = checksummer_.entry(block, buffer.bytes());
      if (found == entry) {
        settled = settled && checksums_.write(block, std::span(&entry, 1));
      } else if (is_torn(block, found)) {
        torn.push_back(block);
      }
    }
    note_damage(torn);
    return settled;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Writes whole blocks of memory that the file accepts, at most chunk_bytes.
Result<void> StoredVolume::write_blocks(std::uint64_t first, Bytes bytes, bool& keep) {
  Entries memory;
  const std::span entries = std::span(memory).first(bytes.size() / block_bytes);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i] = checksummer_.entry(first + i, bytes.subspan(i * block_bytes, block_bytes));
  }
  if (Result<void> dropped = drop_repaired(first, first + entries.size()); !dropped) return dropped;
  const Result<void> written = caught([&] {
    Result<void> data = files_.data->write(first * block_bytes, bytes);
    return data ? checksums_.write(first, entries) : data;
  });
  if (written) return end_damage(first, first + entries.size());
  if (!settle(first, first + entries.size(), entries)) keep = true;
  return written;
}

// Writes at most chunk_bytes of blocks. Blocks that the range covers in part are read first.
Result<void> StoredVolume::write_part(std::uint64_t offset, Bytes bytes, bool& keep) {
  const std::uint64_t first = block_of(offset);
  const std::uint64_t end = block_end_of(offset + bytes.size());
  const bool head = offset % block_bytes != 0;
  const bool tail = (offset + bytes.size()) % block_bytes != 0;
  if (!head && !tail && accepts(*files_.data, bytes.data())) return write_blocks(first, bytes, keep);
  AlignedBuffer buffer((end - first) * block_bytes);
  const MutableBytes blocks = buffer.bytes();
  if (head) {
    if (Result<void> read = read_blocks(first, blocks.first(block_bytes)); !read) return read;
  }
  if (tail && (!head || end - first > 1)) {
    if (Result<void> read = read_blocks(end - 1, blocks.last(block_bytes)); !read) return read;
  }
  std::memcpy(blocks.data() + offset % block_bytes, bytes.data(), bytes.size());
  return write_blocks(first, blocks, keep);
}

// The range is locked.
Result<void> StoredVolume::write_locked(std::uint64_t offset, Bytes bytes) {
  const auto apply = [&](std::uint64_t at, std::uint64_t part, bool& keep) {
    const Bytes given = bytes.subspan(at - offset, part);
    Result<void> written;
    for (std::size_t done = 0; written && done < given.size();) {
      const std::size_t count = std::min<std::uint64_t>(given.size() - done, chunk_bytes - (at + done) % block_bytes);
      written = write_part(at + done, given.subspan(done, count), keep);
      done += count;
    }
    return written;
  };
  Result<void> written = change(offset, bytes.size(), ChecksumSpace::reserve, apply);
  if (written) writes_.add(bytes.size());
  return written;
}

Result<void> StoredVolume::write(std::uint64_t offset, Bytes bytes, bool fua, const std::stop_token& abandoned) {
  if (offset > volume_bytes_max || bytes.size() > volume_bytes_max) return check(offset, bytes.size(), true);
  {
    const RangeLock::Held held =
        ranges_.lock(block_of(offset), block_end_of(offset + bytes.size()), RangeLock::Mode::exclusive);
    if (abandoned.stop_requested()) return store_fail(ECANCELED, "the client has gone");
    if (Result<void> written = write_locked(offset, bytes); !written) return written;
  }
  return fua ? flush() : Result<void>{};
}

std::optional<Result<void>> StoredVolume::try_write(std::uint64_t offset, Bytes bytes, bool fua) {
  if (offset > volume_bytes_max || bytes.size() > volume_bytes_max) return check(offset, bytes.size(), true);
  const RangeLock::Held held =
      ranges_.try_lock(block_of(offset), block_end_of(offset + bytes.size()), RangeLock::Mode::exclusive);
  if (!held) return std::nullopt;
  Result<void> written = write_locked(offset, bytes);
  // Functions that have all of the volume wait until the range is unlocked.
  return written && fua ? flush_locked() : written;
}

// ---- Zeros ----

Result<void> StoredVolume::zero_blocks(std::uint64_t first, std::uint64_t end, bool deallocate, bool& keep) {
  if (Result<void> dropped = drop_repaired(first, end); !dropped) return dropped;
  const Result<void> zeroed = caught([&] {
    Result<void> data =
        files_.data->zero(first * block_bytes, (end - first) * block_bytes, deallocate && !superblock_.preallocated);
    return data ? checksums_.clear(first, end, !superblock_.preallocated) : data;
  });
  if (zeroed) return end_damage(first, end);
  if (!settle(first, end, {})) keep = true;
  return zeroed;
}

Result<void> StoredVolume::zero_part(std::uint64_t offset, std::uint64_t bytes, bool deallocate, bool& keep) {
  static constexpr std::array<std::byte, block_bytes> zeros{};
  const std::uint64_t end = offset + bytes;
  const std::uint64_t first_whole = std::min(block_end_of(offset) * block_bytes, end);
  const std::uint64_t end_whole = std::max(block_of(end) * block_bytes, first_whole);
  Result<void> result;
  if (offset < first_whole) result = write_part(offset, Bytes(zeros).first(first_whole - offset), keep);
  if (result && first_whole < end_whole) {
    result = zero_blocks(block_of(first_whole), block_of(end_whole), deallocate, keep);
  }
  if (result && end_whole < end) result = write_part(end_whole, Bytes(zeros).first(end - end_whole), keep);
  return result;
}

Result<void> StoredVolume::write_zeroes(std::uint64_t offset, std::uint64_t bytes, bool deallocate, bool fua,
                                        const std::stop_token& abandoned) {
  if (offset > volume_bytes_max || bytes > volume_bytes_max) return check(offset, bytes, true);
  {
    const RangeLock::Held held =
        ranges_.lock(block_of(offset), block_end_of(offset + bytes), RangeLock::Mode::exclusive);
    if (abandoned.stop_requested()) return store_fail(ECANCELED, "the client has gone");
    const Result<void> zeroed =
        change(offset, bytes, ChecksumSpace::free,
               [&](std::uint64_t at, std::uint64_t part, bool& keep) { return zero_part(at, part, deallocate, keep); });
    if (!zeroed) return zeroed;
  }
  return fua ? flush() : Result<void>{};
}

Result<void> StoredVolume::discard(std::uint64_t offset, std::uint64_t bytes, const std::stop_token& abandoned) {
  if (offset > volume_bytes_max || bytes > volume_bytes_max) return check(offset, bytes, true);
  if (Result<void> checked = check(offset, bytes, true); !checked) return checked;
  const std::uint64_t first = block_end_of(offset) * block_bytes;
  const std::uint64_t end = block_of(offset + bytes) * block_bytes;
  return first < end ? write_zeroes(first, end - first, true, false, abandoned) : Result<void>{};
}

Result<StoredVolume::Extent> StoredVolume::extent(std::uint64_t offset, std::uint64_t end) {
  if (end <= offset || end > volume_bytes_max) return store_fail(EINVAL, "the range is empty or too large");
  const RangeLock::Held held = ranges_.lock(block_of(offset), block_end_of(end), RangeLock::Mode::shared);
  if (Result<void> checked = check(offset, end - offset, false); !checked) return std::unexpected(checked.error());
  Extent extent{.end = offset};
  Entries memory;
  bool begun = false;
  for (std::uint64_t block = block_of(offset); extent.end < end;) {
    const std::span entries =
        std::span(memory).first(std::min<std::uint64_t>(block_end_of(end) - block, memory.size()));
    if (Result<void> read = checksums_.read(block, entries); !read) return std::unexpected(read.error());
    for (const std::uint32_t entry : entries) {
      if (begun && (entry == 0) != extent.zeros) return extent;
      extent.zeros = entry == 0;
      begun = true;
      extent.end = std::min(++block * block_bytes, end);
    }
  }
  return extent;
}

// ---- Flushing ----

// Makes everything durable, also the checksums, and clears marks.
Result<void> StoredVolume::sync_all(bool all) {
  const std::uint64_t flush = marks_.begin_flush();
  if (Result<void> synced = files_.data->sync(); !synced) return break_down(synced.error());
  if (Result<void> synced = files_.side->sync(); !synced) return break_down(synced.error());
  marks_.clear(flush, all);
  return {};
}

// Nobody has all of the volume. The checksums of marked regions are computed from the data after a crash, so that the
// data alone are synced.
Result<void> StoredVolume::flush_locked() {
  if (Result<void> state = failed_state(); !state) return state;
  // A volume that is read-only now may have writes of an earlier start of the server that are not durable.
  if (!read_only_ && ++flushes_ % options_.flushes_per_clear == 0 && marks_.marked() > 0) return sync_all(false);
  (void)marks_.begin_flush();
  if (Result<void> synced = files_.data->sync(); !synced) return break_down(synced.error());
  return {};
}

// Waits for functions that have all of the volume, and for nothing else: no block has this number.
Result<void> StoredVolume::flush() {
  const RangeLock::Held held = ranges_.lock(UINT64_MAX - 1, UINT64_MAX, RangeLock::Mode::shared);
  return flush_locked();
}

std::optional<Result<void>> StoredVolume::try_flush() {
  const RangeLock::Held held = ranges_.try_lock(UINT64_MAX - 1, UINT64_MAX, RangeLock::Mode::shared);
  if (!held) return std::nullopt;
  return flush_locked();
}

Result<void> StoredVolume::close() {
  const RangeLock::Held held = ranges_.lock(0, UINT64_MAX, RangeLock::Mode::exclusive);
  if (closed_) return {};
  Result<void> result;
  if (!read_only_ && broken_) {
    result = failed_state();
  } else if (!read_only_) {
    result = sync_all(true);
    if (result) result = files_.side->sync();
  }
  closed_ = true;
  return result;
}

void StoredVolume::release_removed() {
  const RangeLock::Held held = ranges_.lock(0, UINT64_MAX, RangeLock::Mode::exclusive);
  files_.data->release_removed();
  files_.side->release_removed();
}

// ---- Scrub, info ----

Result<void> StoredVolume::scrub_chunk(std::uint64_t first, std::uint64_t end, ScrubReport& report) {
  const RangeLock::Held held = ranges_.lock(first, end, RangeLock::Mode::shared);
  if (first * block_bytes >= size()) return {};  // The volume has become smaller.
  end = std::min(end, block_of(size()));
  if (Result<void> checked = check(first * block_bytes, (end - first) * block_bytes, false); !checked) return checked;
  Entries memory;
  const std::span entries = std::span(memory).first(end - first);
  if (Result<void> read = checksums_.read(first, entries); !read) return read;
  AlignedBuffer buffer(entries.size() * block_bytes);
  const bool whole = files_.data->read(first * block_bytes, buffer.bytes()).has_value();
  std::vector<std::uint64_t> mismatching;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const MutableBytes block = buffer.bytes().subspan(i * block_bytes, block_bytes);
    const bool readable = whole || files_.data->read((first + i) * block_bytes, block);
    const std::uint32_t found = readable ? checksummer_.entry(first + i, block) : 0;
    ++report.blocks;
    if (readable && found == entries[i]) continue;
    ++report.damaged;
    if (readable) mismatching.push_back(first + i);
    if (report.listed.size() < ScrubReport::damaged_listed_max) report.listed.push_back({first + i, found, entries[i]});
  }
  note_damage(mismatching);
  return {};
}

Result<ScrubReport> StoredVolume::scrub(std::uint64_t offset, std::uint64_t bytes) {
  if (!options_.checksums) {
    return store_fail(EOPNOTSUPP, "volume " + name_ +
                                      " has no checksums to verify, because it is in memory: start the server with "
                                      "--checksums to have them");
  }
  ScrubReport report;
  const std::uint64_t size = this->size();
  const std::uint64_t end = block_of(bytes < size - std::min(offset, size) ? offset + bytes + block_bytes - 1 : size);
  for (std::uint64_t block = block_end_of(std::min(offset, size)); block < end; block += region_blocks) {
    const Result<void> done = scrub_chunk(block, std::min(block + region_blocks, end), report);
    if (!done) return std::unexpected(done.error());
  }
  return report;
}

Result<VolumeInfo> StoredVolume::info() const {
  if (closed_) return std::unexpected(failed_state().error());
  const Result<std::uint64_t> allocated = files_.data->allocated();
  if (!allocated) return std::unexpected(allocated.error());
  return VolumeInfo{.size = size(),
                    .allocated_bytes = *allocated,
                    .marked_regions = marks_.marked(),
                    .recovered_blocks = recovered_blocks_,
                    .mismatches = mismatches_,
                    .known_damaged = damage_.size(),
                    .traffic = {.reads = reads_.count,
                                .read_bytes = reads_.bytes,
                                .writes = writes_.count,
                                .written_bytes = writes_.bytes,
                                .flushes = flushes_},
                    .preallocated = superblock_.preallocated,
                    .read_only = read_only_,
                    .warning = warning_};
}

}  // namespace hawser::block
