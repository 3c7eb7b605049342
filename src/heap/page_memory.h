#pragma once

#include <cstddef>
#include <utility>

#include "hawser/bytes.h"

namespace hawser {

// Zeroed memory of whole pages, aligned to a page, or to a huge page from huge_page_bytes on. One thread at a time.
class PageMemory {
 public:
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

  PageMemory() noexcept = default;
  // `bytes` is a multiple of page_bytes. Empty if there is not enough address space. From huge_page_bytes on, the
  // kernel allocates the pages when they are first touched, or by populate().
  static PageMemory allocate(std::size_t bytes) noexcept;
  PageMemory(PageMemory&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  PageMemory& operator=(PageMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~PageMemory();

  bool empty() const noexcept { return memory_.empty(); }
  MutableBytes bytes() const noexcept { return memory_; }
  // Prefers huge pages, which need fewer entries in a device's page table. Only for pages that are not allocated yet.
  void prefer_huge_pages() const noexcept;
  // Allocates the pages of a part, which is aligned to page_bytes. Any thread. False if there is not enough memory.
  static bool populate(MutableBytes part) noexcept;

 private:
  explicit PageMemory(MutableBytes memory) noexcept : memory_(memory) {}
  MutableBytes memory_;
};

}  // namespace hawser
