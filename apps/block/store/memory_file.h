#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "block/store/file.h"

namespace hawser::block {

// Bounds the memory of several files.
struct MemoryBudget {
  std::uint64_t bytes_max = UINT64_MAX;
  std::atomic<std::uint64_t> used = 0;
};

// A file in memory, in pages that are allocated by the first write. It ends with the object. Writes beyond the budget
// fail with ENOSPC.
class MemoryFile final : public File {
 public:
  explicit MemoryFile(std::shared_ptr<MemoryBudget> budget = std::make_shared<MemoryBudget>()) noexcept
      : budget_(std::move(budget)) {}
  ~MemoryFile() override { budget_->used -= used_ + table_bytes_; }

  bool accepts_every_address() const noexcept override { return true; }
  Result<void> read(std::uint64_t offset, MutableBytes into) override;
  Result<void> write(std::uint64_t offset, Bytes bytes) override;
  Result<void> sync() override { return {}; }
  Result<void> allocate(std::uint64_t offset, std::uint64_t bytes) override;
  Result<void> zero(std::uint64_t offset, std::uint64_t bytes, bool deallocate) override;
  Result<void> resize(std::uint64_t bytes) override;
  void release_removed() noexcept override;
  Result<std::uint64_t> size() override;
  Result<std::uint64_t> allocated() override;

 private:
  static constexpr std::uint64_t page_bytes = 64 * 1024;
  static constexpr std::size_t pages_per_group = 512;
  static constexpr std::size_t pages_per_lock = 16;  // Are cleared while accesses of others wait.
  static constexpr std::uint64_t page_end_of(std::uint64_t end) noexcept { return (end + page_bytes - 1) / page_bytes; }
  using Page = std::unique_ptr<std::byte[]>;
  // The pages of 32 MiB. A page that is absent is zeros.
  using Group = std::array<Page, pages_per_group>;

  // Null: absent.
  std::byte* find_page(std::uint64_t page) const noexcept;
  bool charge(std::uint64_t bytes) noexcept;
  Group* make_group(std::uint64_t number);
  bool has_page(std::uint64_t page) const noexcept;
  bool has_pages(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  Result<void> fill_pages(std::uint64_t offset, std::uint64_t bytes);
  void copy_to_pages(std::uint64_t offset, Bytes bytes) noexcept;
  bool add_page(std::uint64_t page, Page memory);
  std::uint64_t clear(std::uint64_t offset, std::uint64_t end, bool deallocate, std::size_t pages_max);

  // Held shared by accesses of existing pages, which the ranges of a volume keep apart, and exclusively by changes of
  // the table: for a few pages at a time, so that no access of other pages waits for long.
  mutable std::shared_mutex mutex_;
  std::vector<std::unique_ptr<Group>> groups_;  // A table of two steps: a search in a tree was a quarter of a request.
  std::uint64_t size_ = 0;
  std::uint64_t used_ = 0;         // Bytes of pages.
  std::uint64_t table_bytes_ = 0;  // Bytes of groups and their table.
  const std::shared_ptr<MemoryBudget> budget_;
};

}  // namespace hawser::block
