#include "transport/shm/process_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "heap/system_page.h"

namespace hawser::transport::shm {

ProcessMark::ProcessMark() {
  const std::size_t page_bytes = system_page_bytes();
  void* const page = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  const bool cleared = madvise(page, page_bytes, MADV_WIPEONFORK) == 0;
  word_ = new (page) std::atomic<std::uint32_t>(cleared ? cleared_in_children : not_cleared);
  process_ = getpid();
}

bool ProcessMark::made_here() const noexcept { return process_ == getpid(); }

ProcessMark::~ProcessMark() { munmap(word_, system_page_bytes()); }

}  // namespace hawser::transport::shm
