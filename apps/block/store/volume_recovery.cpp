// The beginning of a volume, its size, and what a start does after a crash.
#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "block/store/aligned_buffer.h"
#include "block/store/store_error.h"
#include "block/store/stored_volume.h"

namespace hawser::block {
namespace {

constexpr std::uint32_t unreadable_entry = 1;

// Regions of a volume that is not written, whose checksums are in memory: 1 KiB each.
constexpr std::size_t regions_in_memory_max = 65'536;

bool is_full_disk(const Error& error) { return error.application_code == ENOSPC || error.application_code == EDQUOT; }

}  // namespace

// One slot after the other, so that one is valid at each time. Both are the same afterwards: if one is damaged later,
// the other one still has the newest size.
Result<void> StoredVolume::write_superblock(File& side, const Superblock& superblock) {
  const auto bytes = encode(superblock);
  for (unsigned slot = 0; slot < superblock_slots; ++slot) {
    if (Result<void> written = side.write(slot * superblock_bytes, bytes); !written) return written;
    if (Result<void> synced = side.sync(); !synced) return synced;
  }
  return {};
}

Result<StoredVolume::FoundSuperblock> StoredVolume::read_superblock(const std::string& name, File& side) {
  std::array<std::optional<Superblock>, superblock_slots> slots;
  for (unsigned slot = 0; slot < superblock_slots; ++slot) {
    std::array<std::byte, superblock_bytes> bytes;
    if (side.read(slot * superblock_bytes, bytes)) slots[slot] = decode_superblock(bytes);
  }
  const auto generation = [](const std::optional<Superblock>& slot) { return slot ? slot->generation : 0; };
  const std::optional<Superblock>& newest = *std::ranges::max_element(slots, {}, generation);
  if (!newest) {
    return store_fail(EIO, "volume " + name +
                               " has no valid superblock: it is damaged or of another version; restore it from a copy");
  }
  return FoundSuperblock{*newest, slots[0] == slots[1]};
}

// Which superblock a start would find is not known after an error.
Result<void> StoredVolume::replace_superblock(std::uint64_t size, std::uint64_t resize_size) {
  Superblock next = superblock_;
  next.size = size;
  next.resize_size = resize_size;
  ++next.generation;
  if (Result<void> written = write_superblock(*files_.side, next); !written) return break_down(written.error());
  superblock_ = next;
  return {};
}

Result<void> StoredVolume::format(VolumeFiles& files, std::uint64_t size, const Uuid& uuid, bool preallocate) {
  if (size == 0 || size % block_bytes != 0 || size > volume_bytes_max) {
    return store_fail(
        EINVAL, "a volume has a multiple of 4096 bytes and at most 16 TiB, not " + std::to_string(size) + " bytes");
  }
  Result<void> result = files.data->resize(size);
  if (result && preallocate) result = files.data->allocate(0, size);
  if (result) result = files.data->sync();
  if (result) result = files.side->resize(side_bytes(size));
  if (result && preallocate) result = files.side->allocate(0, side_bytes(size));
  // A disk that is full later has room for the first damaged blocks.
  if (result) (void)files.side->allocate(damage_offset, block_bytes);
  if (result) {
    result = write_superblock(*files.side, {.size = size, .generation = 1, .uuid = uuid, .preallocated = preallocate});
  }
  return result;
}

// A crash during resize() leaves files that are too long. All others that are too long have data for which the side
// file is too old: they are not cut.
Result<void> StoredVolume::check_files() const {
  const std::uint64_t size = superblock_.size;
  const std::uint64_t largest = std::max(size, superblock_.resize_size);
  const std::array<std::uint64_t, 3> sizes[] = {{0, size, largest}, {1, side_bytes(size), side_bytes(largest)}};
  for (const auto& [file, expected, most] : sizes) {
    const Result<std::uint64_t> found = (file == 0 ? files_.data : files_.side)->size();
    if (!found) return std::unexpected(found.error());
    if (*found < expected) {
      return store_fail(EIO, "a file of volume " + name_ + " has " + std::to_string(*found) + " bytes instead of " +
                                 std::to_string(expected) + ": it was cut; restore it from a copy");
    }
    if (*found > most && !options_.read_only) {
      return store_fail(
          EIO, std::string("the file \"") + (file == 0 ? "data" : "side") + "\" of volume " + name_ + " has " +
                   std::to_string(*found) + " bytes, and its side file is that of a volume of " + std::to_string(size) +
                   " bytes: it may be older than the data. Put the newer side file back, or cut the files "
                   "if the bytes behind are not needed (--read-only shows what is before them)");
    }
  }
  return {};
}

// Removes what a resize() left of files that it was making longer or shorter.
Result<void> StoredVolume::cut_files() {
  if (superblock_.resize_size == 0) return {};
  Result<void> cut = files_.data->resize(superblock_.size);
  if (cut) cut = files_.side->resize(side_bytes(superblock_.size));
  if (!cut) return cut;
  if (Result<void> synced = files_.data->sync(); !synced) return break_down(synced.error());
  if (Result<void> synced = files_.side->sync(); !synced) return break_down(synced.error());
  return replace_superblock(superblock_.size, 0);
}

// Blocks that are known to be damaged keep their entries, and so do blocks that cannot be read: they stay an error for
// their readers, and no other block does.
Result<StoredVolume::FoundRegion> StoredVolume::find_region(std::uint64_t region) {
  FoundRegion found{.first = region * region_blocks};
  found.blocks = std::min(found.first + region_blocks, superblock_.size / block_bytes) - found.first;
  const std::span entries = std::span(found.entries).first(found.blocks);
  if (Result<void> read = checksums_.read(found.first, entries); !read) return std::unexpected(read.error());
  found.before = found.entries;
  AlignedBuffer buffer(found.blocks * block_bytes);
  const bool whole = files_.data->read(found.first * block_bytes, buffer.bytes()).has_value();
  for (std::size_t i = 0; i < found.blocks; ++i) {
    const std::uint64_t number = found.first + i;
    const MutableBytes block = buffer.bytes().subspan(i * block_bytes, block_bytes);
    if (damage_.contains(number, number + 1)) continue;
    if (whole || files_.data->read(number * block_bytes, block)) {
      entries[i] = checksummer_.entry(number, block);
    } else {
      found.unreadable.push_back(number);
      if (entries[i] == 0) entries[i] = unreadable_entry;  // Its data may not be zeros.
    }
  }
  recovered_blocks_ += found.blocks;
  return found;
}

// The data of marked regions are made durable too: what this start has seen does not change at the next one.
Result<void> StoredVolume::recover(const std::vector<std::uint64_t>& marked) {
  if (marked.empty()) return {};
  for (const std::uint64_t region : marked) {
    const Result<FoundRegion> found = find_region(region);
    if (!found) return std::unexpected(found.error());
    note_damage(found->unreadable);
    // Entries that agree need no space in the side file, which a full disk does not have.
    if (found->entries == found->before) continue;
    if (Result<void> written = checksums_.write(found->first, found->computed()); !written) return written;
  }
  return sync_all(true);
}

// For a volume that is not written: the marks stay, and the next start that can write does it again.
Result<void> StoredVolume::recover_in_memory(const std::vector<std::uint64_t>& marked) {
  if (marked.size() > regions_in_memory_max) {
    return store_fail(EROFS, "volume " + name_ + " has " + std::to_string(marked.size()) +
                                 " regions whose checksums must be computed anew, and a volume that is not written can "
                                 "have " +
                                 std::to_string(regions_in_memory_max) + ": open it for writing, with free space");
  }
  recovered_blocks_ = 0;
  for (const std::uint64_t region : marked) {
    const Result<FoundRegion> found = find_region(region);
    if (!found) return std::unexpected(found.error());
    checksums_.replace(found->first, found->computed());
  }
  return {};
}

void StoredVolume::warn(const std::string& text) {
  warning_ += (warning_.empty() ? "volume " + name_ + ": " : "; ") + text;
}

void StoredVolume::become_read_only(const std::string& reason) {
  read_only_ = true;
  read_only_reason_ = ": " + reason;
  warn("it is read-only: " + reason);
}

// Makes a volume ready for its first request.
Result<void> StoredVolume::prepare(bool superblock_in_both_slots) {
  if (Result<void> checked = check_files(); !checked) return checked;
  const Result<std::vector<std::uint64_t>> marked = marks_.load(superblock_.size);
  if (!marked) return std::unexpected(marked.error());
  if (Result<void> loaded = damage_.load(); !loaded) return loaded;
  if (marks_.damaged_sectors() > 0) {
    warn("damaged sectors of marks in its side file: " + std::to_string(marks_.damaged_sectors()) +
         "; after a crash, blocks that were being written may be unreadable: verify it with `hawser-block scrub`");
  }
  if (damage_.damaged_sectors() > 0) {
    warn("damaged sectors of the list of damaged blocks in its side file: " +
         std::to_string(damage_.damaged_sectors()) + "; verify it with `hawser-block scrub`");
  }
  if (damage_.full()) {
    // Checksums of marked regions are not computed: more blocks are damaged than the list can have.
    become_read_only(std::to_string(damage_blocks_max) + " blocks are damaged: copy the others to another volume");
    return {};
  }
  if (!read_only_) {
    Result<void> done = superblock_in_both_slots ? Result<void>{} : write_superblock(*files_.side, superblock_);
    if (done) done = cut_files();
    if (done) done = recover(*marked);
    if (done || !is_full_disk(done.error())) return done;
    become_read_only("the disk was full when the server started (" + done.error().text +
                     "): free space, and restart the server");
  }
  return recover_in_memory(*marked);
}

Result<std::unique_ptr<StoredVolume>> StoredVolume::open(std::string name, VolumeFiles files,
                                                         StoredVolumeOptions options) {
  options.marked_regions_max = std::max<std::size_t>(options.marked_regions_max, 1);
  options.flushes_per_clear = std::max(options.flushes_per_clear, 1U);
  const Result<FoundSuperblock> found = read_superblock(name, *files.side);
  if (!found) return std::unexpected(found.error());
  std::unique_ptr<StoredVolume> volume(new StoredVolume(std::move(name), std::move(files), found->superblock, options));
  if (Result<void> ready = volume->prepare(found->in_both_slots); !ready) return std::unexpected(ready.error());
  return volume;
}

// The superblock has both sizes while the files grow.
Result<void> StoredVolume::grow(std::uint64_t size) {
  const std::uint64_t before = superblock_.size;
  // A resize before may have left bytes behind the end, and damaged blocks in the list.
  if (Result<void> cut = cut_files(); !cut) return cut;
  if (Result<void> removed = damage_.remove(before / block_bytes, UINT64_MAX); !removed) {
    return break_down(removed.error());
  }
  if (Result<void> begun = replace_superblock(before, size); !begun) return begun;
  Result<void> grown = files_.data->resize(size);
  if (grown && superblock_.preallocated) grown = files_.data->allocate(before, size - before);
  if (grown) grown = files_.side->resize(side_bytes(size));
  if (grown && superblock_.preallocated) grown = files_.side->allocate(0, side_bytes(size));
  if (!grown) {
    (void)cut_files();  // Their space is free for other volumes.
    return grown;
  }
  if (Result<void> synced = files_.data->sync(); !synced) return break_down(synced.error());
  if (Result<void> synced = files_.side->sync(); !synced) return break_down(synced.error());
  return replace_superblock(size, 0);
}

// The superblock decides about the size after a crash: files grow before it, and shrink after it.
Result<void> StoredVolume::resize(std::uint64_t size) {
  if (size == 0 || size % block_bytes != 0 || size > volume_bytes_max) {
    return store_fail(
        EINVAL, "a volume has a multiple of 4096 bytes and at most 16 TiB, not " + std::to_string(size) + " bytes");
  }
  const RangeLock::Held held = ranges_.lock(0, UINT64_MAX, RangeLock::Mode::exclusive);
  if (Result<void> checked = check(0, 0, true); !checked) return checked;
  const std::uint64_t before = superblock_.size;
  if (size == before) return {};
  if (Result<void> synced = sync_all(true); !synced) return synced;
  if (Result<void> done = size > before ? grow(size) : replace_superblock(size, before); !done) return done;
  marks_.resize(size);
  size_ = size;
  if (size > before) return {};
  if (Result<void> removed = damage_.remove(size / block_bytes, UINT64_MAX); !removed) {
    return break_down(removed.error());
  }
  // If this fails, the next start or the next growth does it again.
  (void)cut_files();
  return {};
}

}  // namespace hawser::block
