#include "block/store/memory_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "block/store/store_error.h"

namespace hawser::block {

std::byte* MemoryFile::find_page(std::uint64_t page) const noexcept {
  const std::uint64_t number = page / pages_per_group;
  if (number >= groups_.size() || !groups_[number]) return nullptr;
  return (*groups_[number])[page % pages_per_group].get();
}

Result<void> MemoryFile::read(std::uint64_t offset, MutableBytes into) {
  const std::shared_lock lock(mutex_);
  while (!into.empty()) {
    const std::uint64_t inside = offset % page_bytes;
    const std::size_t part = std::min<std::uint64_t>(into.size(), page_bytes - inside);
    const std::byte* const page = find_page(offset / page_bytes);
    if (page != nullptr) {
      std::memcpy(into.data(), page + inside, part);
    } else {
      std::memset(into.data(), 0, part);
    }
    into = into.subspan(part);
    offset += part;
  }
  return {};
}

bool MemoryFile::charge(std::uint64_t bytes) noexcept {
  if (budget_->used.fetch_add(bytes) + bytes <= budget_->bytes_max) return true;
  budget_->used -= bytes;
  return false;
}

// Null if the budget has no room.
MemoryFile::Group* MemoryFile::make_group(std::uint64_t number) {
  const std::size_t groups = groups_.size();
  if (number < groups && groups_[number]) return groups_[number].get();
  auto group = std::make_unique<Group>();
  if (number >= groups) groups_.resize(number + 1);
  const std::uint64_t bytes = sizeof(Group) + (groups_.size() - groups) * sizeof(groups_[0]);
  if (!charge(bytes)) {
    groups_.resize(groups);
    return nullptr;
  }
  table_bytes_ += bytes;
  groups_[number] = std::move(group);
  return groups_[number].get();
}

bool MemoryFile::add_page(std::uint64_t page, Page memory) {
  Group* const group = make_group(page / pages_per_group);
  if (group == nullptr || !charge(page_bytes)) return false;
  used_ += page_bytes;
  (*group)[page % pages_per_group] = std::move(memory);
  return true;
}

bool MemoryFile::has_page(std::uint64_t page) const noexcept {
  const std::shared_lock lock(mutex_);
  return find_page(page) != nullptr;
}

bool MemoryFile::has_pages(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  if (offset + bytes > size_) return false;
  const std::uint64_t end = page_end_of(offset + bytes);
  for (std::uint64_t page = offset / page_bytes; page < end; ++page) {
    if (find_page(page) == nullptr) return false;
  }
  return true;
}

// Makes the pages of the range, which nobody else uses.
Result<void> MemoryFile::fill_pages(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t end = page_end_of(offset + bytes);
  for (std::uint64_t page = offset / page_bytes; page < end; ++page) {
    if (has_page(page)) continue;
    try {
      auto memory = std::make_unique<std::byte[]>(page_bytes);
      const std::unique_lock lock(mutex_);
      if (find_page(page) == nullptr && !add_page(page, std::move(memory))) {
        return store_fail(
            ENOSPC, "the volumes use all of their memory, " + std::to_string(budget_->bytes_max) + " bytes (--memory)");
      }
    } catch (const std::bad_alloc&) {
      return store_fail(ENOSPC, "the machine has no memory for the volume");
    }
  }
  const std::unique_lock lock(mutex_);
  size_ = std::max(size_, offset + bytes);
  return {};
}

// Nobody else uses the range: its pages stay until the copy has ended.
Result<void> MemoryFile::write(std::uint64_t offset, Bytes bytes) {
  if (bytes.empty()) return {};
  {
    const std::shared_lock lock(mutex_);
    if (has_pages(offset, bytes.size())) {
      copy_to_pages(offset, bytes);
      return {};
    }
  }
  if (Result<void> filled = fill_pages(offset, bytes.size()); !filled) return filled;
  const std::shared_lock lock(mutex_);
  copy_to_pages(offset, bytes);
  return {};
}

void MemoryFile::copy_to_pages(std::uint64_t offset, Bytes bytes) noexcept {
  while (!bytes.empty()) {
    const std::uint64_t inside = offset % page_bytes;
    const std::size_t part = std::min<std::uint64_t>(bytes.size(), page_bytes - inside);
    std::memcpy(find_page(offset / page_bytes) + inside, bytes.data(), part);
    bytes = bytes.subspan(part);
    offset += part;
  }
}

Result<void> MemoryFile::allocate(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return {};
  {
    const std::shared_lock lock(mutex_);
    if (has_pages(offset, bytes)) return {};
  }
  return fill_pages(offset, bytes);
}

// Clears [offset, end), but at most so many pages that are there. Returns the end of what is cleared.
std::uint64_t MemoryFile::clear(std::uint64_t offset, std::uint64_t end, bool deallocate, std::size_t pages_max) {
  for (std::uint64_t number = offset / page_bytes; number < groups_.size() * pages_per_group; ++number) {
    const std::uint64_t begin = number * page_bytes;
    if (begin >= end) return end;
    Group* const group = groups_[number / pages_per_group].get();
    if (group == nullptr) {
      number |= pages_per_group - 1;  // Continues with the next group.
      continue;
    }
    Page& page = (*group)[number % pages_per_group];
    if (!page) continue;
    if (pages_max-- == 0) return begin;
    const std::uint64_t from = std::max(begin, offset);
    const std::uint64_t to = std::min(begin + page_bytes, end);
    if (deallocate && to - from == page_bytes) {
      page.reset();
      used_ -= page_bytes;
      budget_->used -= page_bytes;
    } else {
      std::memset(page.get() + (from - begin), 0, to - from);
    }
  }
  return end;
}

Result<void> MemoryFile::zero(std::uint64_t offset, std::uint64_t bytes, bool deallocate) {
  const std::uint64_t end = offset + bytes;
  while (offset < end) {
    const std::unique_lock lock(mutex_);
    offset = clear(offset, end, deallocate, pages_per_lock);
  }
  return {};
}

Result<void> MemoryFile::resize(std::uint64_t bytes) {
  const std::unique_lock lock(mutex_);
  if (bytes < size_) (void)clear(bytes, UINT64_MAX, true, SIZE_MAX);
  size_ = bytes;
  return {};
}

void MemoryFile::release_removed() noexcept {
  std::vector<std::unique_ptr<Group>> groups;  // Deallocated without the lock.
  const std::unique_lock lock(mutex_);
  groups.swap(groups_);
  budget_->used -= used_ + table_bytes_;
  used_ = 0;
  table_bytes_ = 0;
  size_ = 0;
}

Result<std::uint64_t> MemoryFile::size() {
  const std::shared_lock lock(mutex_);
  return size_;
}

Result<std::uint64_t> MemoryFile::allocated() {
  const std::shared_lock lock(mutex_);
  return used_;
}

}  // namespace hawser::block
