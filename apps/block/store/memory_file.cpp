#include "block/store/memory_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "block/store/store_error.h"

namespace hawser::block {

Result<void> MemoryFile::read(std::uint64_t offset, MutableBytes into) {
  const std::shared_lock lock(mutex_);
  while (!into.empty()) {
    const std::uint64_t inside = offset % page_bytes;
    const std::size_t part = std::min<std::uint64_t>(into.size(), page_bytes - inside);
    const auto page = pages_.find(offset / page_bytes);
    if (page != pages_.end()) {
      std::memcpy(into.data(), page->second.get() + inside, part);
    } else {
      std::memset(into.data(), 0, part);
    }
    into = into.subspan(part);
    offset += part;
  }
  return {};
}

bool MemoryFile::add_page(std::uint64_t page) {
  if (budget_->used.fetch_add(page_bytes) + page_bytes > budget_->bytes_max) {
    budget_->used -= page_bytes;
    return false;
  }
  used_ += page_bytes;
  try {
    pages_.emplace(page, std::make_unique<std::byte[]>(page_bytes));
  } catch (...) {
    used_ -= page_bytes;
    budget_->used -= page_bytes;
    throw;
  }
  return true;
}

// Makes the pages of the range.
Result<void> MemoryFile::fill_pages(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t first = offset / page_bytes;
  const std::uint64_t end = (offset + bytes + page_bytes - 1) / page_bytes;
  {
    const std::shared_lock lock(mutex_);
    bool there = offset + bytes <= size_;
    for (std::uint64_t page = first; there && page < end; ++page) there = pages_.contains(page);
    if (there) return {};
  }
  const std::unique_lock lock(mutex_);
  try {
    for (std::uint64_t page = first; page < end; ++page) {
      if (pages_.contains(page)) continue;
      if (!add_page(page)) {
        return store_fail(
            ENOSPC, "the volumes use all of their memory, " + std::to_string(budget_->bytes_max) + " bytes (--memory)");
      }
    }
  } catch (const std::bad_alloc&) {
    return store_fail(ENOSPC, "the machine has no memory for the volume");
  }
  size_ = std::max(size_, offset + bytes);
  return {};
}

Result<void> MemoryFile::write(std::uint64_t offset, Bytes bytes) {
  if (bytes.empty()) return {};
  if (Result<void> filled = fill_pages(offset, bytes.size()); !filled) return filled;
  const std::shared_lock lock(mutex_);
  while (!bytes.empty()) {
    const std::uint64_t inside = offset % page_bytes;
    const std::size_t part = std::min<std::uint64_t>(bytes.size(), page_bytes - inside);
    std::memcpy(pages_.find(offset / page_bytes)->second.get() + inside, bytes.data(), part);
    bytes = bytes.subspan(part);
    offset += part;
  }
  return {};
}

Result<void> MemoryFile::allocate(std::uint64_t offset, std::uint64_t bytes) {
  return bytes == 0 ? Result<void>{} : fill_pages(offset, bytes);
}

void MemoryFile::clear(std::uint64_t offset, std::uint64_t bytes, bool deallocate) {
  const std::uint64_t end = offset + bytes;
  for (auto page = pages_.lower_bound(offset / page_bytes); page != pages_.end() && page->first * page_bytes < end;) {
    const std::uint64_t begin = page->first * page_bytes;
    const std::uint64_t from = std::max(begin, offset);
    const std::uint64_t to = std::min(begin + page_bytes, end);
    if (deallocate && to - from == page_bytes) {
      page = pages_.erase(page);
      used_ -= page_bytes;
      budget_->used -= page_bytes;
    } else {
      std::memset(page->second.get() + (from - begin), 0, to - from);
      ++page;
    }
  }
}

Result<void> MemoryFile::zero(std::uint64_t offset, std::uint64_t bytes, bool deallocate) {
  const std::unique_lock lock(mutex_);
  clear(offset, bytes, deallocate);
  return {};
}

Result<void> MemoryFile::resize(std::uint64_t bytes) {
  const std::unique_lock lock(mutex_);
  if (bytes < size_) clear(bytes, UINT64_MAX - bytes, true);
  size_ = bytes;
  return {};
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
