#include "block/store/region_marks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace hawser::block {
namespace {

std::size_t sectors_of(std::uint64_t size) {
  const std::uint64_t regions = (size + region_bytes - 1) / region_bytes;
  return (regions + mark_sector_regions - 1) / mark_sector_regions;
}

}  // namespace

Result<std::vector<std::uint64_t>> RegionMarks::load(std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  sectors_.assign(sectors_of(size) * sector_bytes, std::byte{});
  if (Result<void> read = side_.read(marks_offset, sectors_); !read) return std::unexpected(read.error());
  const std::uint64_t count = (size + region_bytes - 1) / region_bytes;
  std::vector<std::uint64_t> marked;
  for (std::uint64_t sector = 0; sector * sector_bytes < sectors_.size(); ++sector) {
    const MutableBytes bytes = MutableBytes(sectors_).subspan(sector * sector_bytes, sector_bytes);
    const bool unwritten = std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{}; });
    std::uint32_t crc = 0;
    std::memcpy(&crc, bytes.data() + sector_crc_offset, sizeof(crc));
    if (unwritten) continue;
    if (crc != checksummer_.marks(sector, bytes.first(sector_crc_offset))) {
      ++damaged_sectors_;
      std::ranges::fill(bytes, std::byte{});
      continue;
    }
    for (std::uint64_t bit = 0; bit < mark_sector_regions; ++bit) {
      const std::uint64_t region = sector * mark_sector_regions + bit;
      if ((bytes[bit / 8] >> (bit % 8) & std::byte{1}) == std::byte{}) continue;
      if (region >= count) continue;
      marked.push_back(region);
      regions_[region] = {.durable = true};
    }
  }
  return marked;
}

void RegionMarks::change(std::uint64_t region, bool marked) {
  const std::uint64_t sector = region / mark_sector_regions;
  const std::uint64_t bit = region % mark_sector_regions;
  std::byte& byte = sectors_[sector * sector_bytes + bit / 8];
  const std::byte mask = std::byte{1} << (bit % 8);
  byte = marked ? byte | mask : byte & ~mask;
  dirty_.insert(sector);
}

bool RegionMarks::durable(std::uint64_t first, std::uint64_t end) const {
  for (std::uint64_t region = first; region < end; ++region) {
    if (!regions_.at(region).durable) return false;
  }
  return true;
}

// Writes the dirty sectors. With `sync`, the marks that were set before the call are durable afterwards.
Result<void> RegionMarks::write_dirty(std::unique_lock<std::mutex>& lock, bool sync) {
  // The allocations come first, so that nothing has changed if there is no memory.
  std::vector<std::array<std::byte, sector_bytes>> copies;
  for (const std::uint64_t sector : dirty_) {
    std::array<std::byte, sector_bytes>& copy = copies.emplace_back();
    std::memcpy(copy.data(), sectors_.data() + sector * sector_bytes, sector_bytes);
    const std::uint32_t crc = checksummer_.marks(sector, Bytes(copy).first(sector_crc_offset));
    std::memcpy(copy.data() + sector_crc_offset, &crc, sizeof(crc));
  }
  std::vector<std::uint64_t> setting;
  if (sync) {
    for (const auto& [number, region] : regions_) {
      if (!region.durable) setting.push_back(number);
    }
  }
  const std::set<std::uint64_t> dirty = std::exchange(dirty_, {});
  writing_ = true;
  lock.unlock();
  Result<void> result;
  auto sector = dirty.begin();
  for (const auto& copy : copies) {
    result = side_.write(marks_offset + *sector++ * sector_bytes, copy);
    if (!result) break;
  }
  const bool written = result.has_value();
  if (written && sync) result = side_.sync();
  lock.lock();
  writing_ = false;
  written_.notify_all();
  if (written && !result) sync_error_ = result.error();
  if (!written) dirty_.insert(dirty.begin(), dirty.end());
  if (result) {
    for (const std::uint64_t number : setting) regions_[number].durable = true;
  }
  return result;
}

// Sets the marks of the regions and writes them until they are durable.
Result<void> RegionMarks::mark(std::unique_lock<std::mutex>& lock, std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t number = first; number < end; ++number) {
    if (!regions_.at(number).durable) change(number, true);
  }
  while (!durable(first, end)) {
    if (sync_error_) return std::unexpected(*sync_error_);
    if (writing_) {
      written_.wait(lock);
    } else if (Result<void> written = write_dirty(lock, true); !written) {
      return written;
    }
  }
  return {};
}

Result<void> RegionMarks::begin_write(std::uint64_t first, std::uint64_t end) {
  std::unique_lock lock(mutex_);
  // The allocations come first: without memory, no region has a writer that does not end.
  for (std::uint64_t number = first; number < end; ++number) regions_[number].last_flush = flush_;
  for (std::uint64_t number = first; number < end; ++number) ++regions_.find(number)->second.writers;
  try {
    Result<void> marked = mark(lock, first, end);
    if (!marked) end_writers(first, end);
    return marked;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    end_writers(first, end);
    throw;
  }
}

// The writes have changed nothing.
void RegionMarks::end_writers(std::uint64_t first, std::uint64_t end) noexcept {
  for (std::uint64_t number = first; number < end; ++number) --regions_.find(number)->second.writers;
}

bool RegionMarks::try_begin_write(std::uint64_t first, std::uint64_t end, bool with_space) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t number = first; number < end; ++number) {
    const auto region = regions_.find(number);
    if (region == regions_.end() || !region->second.durable || (with_space && !region->second.reserved)) {
      end_writers(first, number);
      return false;
    }
    ++region->second.writers;
    region->second.last_flush = flush_;
  }
  return true;
}

void RegionMarks::end_write(std::uint64_t first, std::uint64_t end, bool keep) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t number = first; number < end; ++number) {
    Region& region = regions_.find(number)->second;
    --region.writers;
    region.last_flush = flush_;
    region.kept = region.kept || keep;
  }
}

bool RegionMarks::reserved(std::uint64_t first, std::uint64_t end) const noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t number = first; number < end; ++number) {
    const auto region = regions_.find(number);
    if (region == regions_.end() || !region->second.reserved) return false;
  }
  return true;
}

void RegionMarks::set_reserved(std::uint64_t first, std::uint64_t end, bool reserved) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t number = first; number < end; ++number) {
    const auto region = regions_.find(number);
    if (region != regions_.end()) region->second.reserved = reserved;
  }
}

std::uint64_t RegionMarks::begin_flush() noexcept {
  const std::lock_guard lock(mutex_);
  return flush_++;
}

void RegionMarks::clear(std::uint64_t flush, bool all) {
  std::unique_lock lock(mutex_);
  written_.wait(lock, [this] { return !writing_; });
  if (sync_error_) return;
  for (auto entry = regions_.begin(); entry != regions_.end();) {
    const Region& region = entry->second;
    if (region.writers == 0 && !region.kept && (all ? region.last_flush <= flush : region.last_flush < flush)) {
      change(entry->first, false);
      entry = regions_.erase(entry);
    } else {
      ++entry;
    }
  }
  // Sectors that could not be written are written with the next mark.
  if (!dirty_.empty()) (void)write_dirty(lock, false);
}

void RegionMarks::resize(std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t count = (size + region_bytes - 1) / region_bytes;
  for (auto entry = regions_.begin(); entry != regions_.end();) {
    if (entry->first >= count) {
      change(entry->first, false);
      entry = regions_.erase(entry);
    } else {
      ++entry;
    }
  }
  const std::size_t sectors = sectors_of(size);
  // The disk keeps the marks of removed sectors. They would cost time when the volume grows again.
  sectors_.resize(std::max(sectors_.size(), sectors * sector_bytes));
}

std::size_t RegionMarks::marked() const noexcept {
  const std::lock_guard lock(mutex_);
  return regions_.size();
}

bool RegionMarks::sync_failed() const noexcept {
  const std::lock_guard lock(mutex_);
  return sync_error_.has_value();
}

}  // namespace hawser::block
