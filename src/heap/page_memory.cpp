#include "heap/page_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

#include "heap/allocation_hook.h"

namespace hawser {
namespace {

constexpr int populate_write = 23;  // MADV_POPULATE_WRITE of Linux 5.14, which older headers of the C library lack.

}  // namespace

// Small memory comes from the heap: the number of mappings of a process is limited.
PageMemory PageMemory::allocate(std::size_t bytes) noexcept {
  if (bytes < huge_page_bytes) {
    void* const pages = ::operator new(bytes, std::align_val_t(page_bytes), std::nothrow);
    if (pages == nullptr) return {};
    std::memset(pages, 0, bytes);
    return PageMemory({static_cast<std::byte*>(pages), bytes});
  }
  if (bytes > PTRDIFF_MAX - huge_page_bytes) return {};
  const std::size_t mapped = bytes + huge_page_bytes;
  void* const at = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return {};
  auto* const begin = static_cast<std::byte*>(at);
  const std::size_t before =
      (huge_page_bytes - reinterpret_cast<std::uintptr_t>(at) % huge_page_bytes) % huge_page_bytes;
  if (before != 0) ::munmap(begin, before);
  ::munmap(begin + before + bytes, huge_page_bytes - before);
  detail::allocation_hook::allocated(begin + before, bytes, __builtin_return_address(0));
  return PageMemory({begin + before, bytes});
}

PageMemory::~PageMemory() {
  if (memory_.size() >= huge_page_bytes) {
    detail::allocation_hook::freed(memory_.data());
    ::munmap(memory_.data(), memory_.size());
  } else if (!memory_.empty()) {
    ::operator delete(memory_.data(), std::align_val_t(page_bytes));
  }
}

void PageMemory::prefer_huge_pages() const noexcept {
  if (memory_.size() >= huge_page_bytes) ::madvise(memory_.data(), memory_.size(), MADV_HUGEPAGE);
}

bool PageMemory::populate(MutableBytes part) noexcept {
  while (::madvise(part.data(), part.size(), populate_write) != 0) {
    if (errno == EINTR) continue;
    if (errno != EINVAL && errno != EPERM && errno != EACCES && errno != ENOSYS) return false;
    // Kernels before 5.14 do not know this advice, and a filter of system calls may refuse it.
    for (std::size_t at = 0; at < part.size(); at += page_bytes) {
      *const_cast<volatile std::byte*>(part.data() + at) = std::byte{};
    }
    return true;
  }
  return true;
}

}  // namespace hawser
