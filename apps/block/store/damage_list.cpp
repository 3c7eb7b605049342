#include "block/store/damage_list.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "block/store/store_error.h"

namespace hawser::block {
namespace {

constexpr std::uint64_t blocks_max = volume_bytes_max / block_bytes;

}  // namespace

Result<void> DamageList::load() {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte> sectors(damage_sectors * sector_bytes);
  if (Result<void> read = side_.read(damage_offset, sectors); !read) return read;
  for (std::uint64_t sector = 0; sector < damage_sectors; ++sector) {
    const Bytes bytes = Bytes(sectors).subspan(sector * sector_bytes, sector_bytes);
    if (std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{}; })) continue;
    std::uint32_t crc = 0;
    std::memcpy(&crc, bytes.data() + sector_crc_offset, sizeof(crc));
    if (crc != checksummer_.damage(sector, bytes.first(sector_crc_offset))) {
      ++damaged_sectors_;
      continue;
    }
    for (std::size_t i = 0; i < damage_sector_blocks; ++i) {
      std::uint64_t entry = 0;
      std::memcpy(&entry, bytes.data() + i * sizeof(entry), sizeof(entry));
      if (entry == 0 || entry > blocks_max) continue;
      const std::size_t slot = sector * damage_sector_blocks + i;
      if (slots_.emplace(entry - 1, slot).second) set(slot, entry);
    }
  }
  dirty_.clear();
  size_ = slots_.size();
  return {};
}

void DamageList::set(std::size_t slot, std::uint64_t entry) {
  const std::uint64_t sector = slot / damage_sector_blocks;
  if (slot >= entries_.size()) entries_.resize((sector + 1) * damage_sector_blocks);
  dirty_.insert(sector);
  entries_[slot] = entry;
}

// Returns false if no slot is free.
bool DamageList::place(std::uint64_t block) {
  if (slots_.contains(block)) return true;
  if (slots_.size() == damage_blocks_max) return false;
  while (free_slot_ < entries_.size() && entries_[free_slot_] != 0) ++free_slot_;
  set(free_slot_, block + 1);
  slots_.emplace(block, free_slot_);
  return true;
}

// Sectors that could not be written or synced stay dirty.
Result<void> DamageList::write_dirty() {
  size_ = slots_.size();
  if (dirty_.empty()) return {};
  for (const std::uint64_t sector : dirty_) {
    std::array<std::byte, sector_bytes> bytes{};
    std::memcpy(bytes.data(), entries_.data() + sector * damage_sector_blocks, damage_sector_blocks * 8);
    const std::uint32_t crc = checksummer_.damage(sector, Bytes(bytes).first(sector_crc_offset));
    std::memcpy(bytes.data() + sector_crc_offset, &crc, sizeof(crc));
    if (Result<void> written = side_.write(damage_offset + sector * sector_bytes, bytes); !written) return written;
  }
  if (Result<void> synced = side_.sync(); !synced) return synced;
  dirty_.clear();
  return {};
}

Result<void> DamageList::add(std::span<const std::uint64_t> blocks) {
  const std::lock_guard lock(mutex_);
  const bool placed = std::ranges::all_of(blocks, [this](std::uint64_t block) { return place(block); });
  if (Result<void> written = write_dirty(); !written || placed) return written;
  return store_fail(EIO, "the list of damaged blocks is full: it has " + std::to_string(damage_blocks_max));
}

Result<void> DamageList::remove(std::uint64_t first, std::uint64_t end) {
  const std::lock_guard lock(mutex_);
  for (auto entry = slots_.lower_bound(first); entry != slots_.end() && entry->first < end;) {
    set(entry->second, 0);
    free_slot_ = std::min(free_slot_, entry->second);
    entry = slots_.erase(entry);
  }
  return write_dirty();
}

bool DamageList::contains(std::uint64_t first, std::uint64_t end) const {
  if (size() == 0) return false;
  const std::lock_guard lock(mutex_);
  const auto entry = slots_.lower_bound(first);
  return entry != slots_.end() && entry->first < end;
}

}  // namespace hawser::block
