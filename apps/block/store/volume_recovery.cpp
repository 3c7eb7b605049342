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

Result<Superblock> StoredVolume::read_superblock(const std::string& name, File& side, bool read_only) {
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
  if (slots[0] != slots[1] && !read_only) {
    if (Result<void> written = write_superblock(side, *newest); !written) return std::unexpected(written.error());
  }
  return *newest;
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
  if (result) {
    result = write_superblock(*files.side, {.size = size, .generation = 1, .uuid = uuid, .preallocated = preallocate});
  }
  return result;
}

// A crash during resize() leaves files that are too long.
Result<void> StoredVolume::check_files() {
  const std::uint64_t size = superblock_.size;
  const std::pair<File*, std::uint64_t> files[] = {{files_.data.get(), size}, {files_.side.get(), side_bytes(size)}};
  for (const auto& [file, expected] : files) {
    const Result<std::uint64_t> found = file->size();
    if (!found) return std::unexpected(found.error());
    if (*found < expected) {
      return store_fail(EIO, "a file of volume " + name_ + " has " + std::to_string(*found) + " bytes instead of " +
                                 std::to_string(expected) + ": it was cut; restore it from a copy");
    }
    if (*found == expected || options_.read_only) continue;
    if (Result<void> cut = file->resize(expected); !cut) return cut;
    if (Result<void> synced = file->sync(); !synced) return synced;
  }
  return {};
}

// A block that cannot be read keeps its entry, so that it stays an error for its readers and no other block does.
Result<void> StoredVolume::recover_region(std::uint64_t region) {
  const std::uint64_t first = region * region_blocks;
  const std::uint64_t end = std::min(first + region_blocks, superblock_.size / block_bytes);
  std::array<std::uint32_t, region_blocks> memory{};
  const std::span entries = std::span(memory).first(end - first);
  if (Result<void> read = checksums_.read(first, entries); !read) return read;
  const auto before = memory;
  AlignedBuffer buffer(entries.size() * block_bytes);
  const bool whole = files_.data->read(first * block_bytes, buffer.bytes()).has_value();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const MutableBytes block = buffer.bytes().subspan(i * block_bytes, block_bytes);
    if (whole || files_.data->read((first + i) * block_bytes, block)) {
      entries[i] = checksummer_.entry(first + i, block);
    } else if (entries[i] == 0) {
      entries[i] = unreadable_entry;  // Its data may not be zeros.
    }
  }
  recovered_blocks_ += entries.size();
  // Entries that agree need no space in the side file, which a full disk does not have.
  if (std::ranges::equal(entries, std::span(before).first(entries.size()))) return {};
  return checksums_.write(first, entries);
}

// The data of marked regions are made durable too: what this start has seen does not change at the next one.
Result<void> StoredVolume::recover() {
  const Result<std::vector<std::uint64_t>> marked = marks_.load(superblock_.size);
  if (!marked) return std::unexpected(marked.error());
  if (marked->empty()) return {};
  if (options_.read_only) {
    return store_fail(EROFS, "volume " + name_ +
                                 " was in use when its server ended, and must be opened for writing once to compute "
                                 "checksums");
  }
  for (const std::uint64_t region : *marked) {
    if (Result<void> recovered = recover_region(region); !recovered) return recovered;
  }
  return sync_all(true);
}

Result<std::unique_ptr<StoredVolume>> StoredVolume::open(std::string name, VolumeFiles files,
                                                         StoredVolumeOptions options) {
  options.marked_regions_max = std::max<std::size_t>(options.marked_regions_max, 1);
  options.flushes_per_clear = std::max(options.flushes_per_clear, 1U);
  const Result<Superblock> superblock = read_superblock(name, *files.side, options.read_only);
  if (!superblock) return std::unexpected(superblock.error());
  std::unique_ptr<StoredVolume> volume(new StoredVolume(std::move(name), std::move(files), *superblock, options));
  if (Result<void> checked = volume->check_files(); !checked) return std::unexpected(checked.error());
  if (Result<void> recovered = volume->recover(); !recovered) return std::unexpected(recovered.error());
  return volume;
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
  if (size > before) {
    // A resize before may have left bytes behind the end.
    Result<void> grown = files_.data->resize(before);
    if (grown) grown = files_.side->resize(side_bytes(before));
    if (grown) grown = files_.data->resize(size);
    if (grown && superblock_.preallocated) grown = files_.data->allocate(before, size - before);
    if (grown) grown = files_.side->resize(side_bytes(size));
    if (grown && superblock_.preallocated) grown = files_.side->allocate(0, side_bytes(size));
    if (!grown) {
      (void)files_.data->resize(before);  // Its space is free for other volumes.
      (void)files_.side->resize(side_bytes(before));
      return grown;
    }
    if (Result<void> synced = files_.data->sync(); !synced) return break_down(synced.error());
    if (Result<void> synced = files_.side->sync(); !synced) return break_down(synced.error());
  }
  Superblock next = superblock_;
  next.size = size;
  ++next.generation;
  // Which superblock a start would find is not known after an error.
  if (Result<void> written = write_superblock(*files_.side, next); !written) return break_down(written.error());
  superblock_ = next;
  marks_.resize(size);
  size_ = size;
  if (size > before) return {};
  // If this fails, the next start or the next growth does it again.
  (void)files_.data->resize(size);
  (void)files_.side->resize(side_bytes(size));
  return {};
}

}  // namespace hawser::block
