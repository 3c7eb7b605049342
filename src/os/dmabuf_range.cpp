#include "os/dmabuf_range.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/decimal_text.h"
#include "heap/system_page.h"

namespace hawser {
namespace {

// All ranges of the process: an access may go over a connection of another client than the one that a range was made
// with, for example after a failover of StripedMemory.
struct Ranges {
  std::shared_mutex mutex;
  std::vector<MutableBytes> all;       // Guarded by the mutex. In the order of their addresses; they do not overlap.
  std::atomic<std::size_t> count = 0;  // The size of `all`.
};

std::uintptr_t begin_of(MutableBytes range) noexcept { return reinterpret_cast<std::uintptr_t>(range.data()); }
std::uintptr_t end_of(MutableBytes range) noexcept { return begin_of(range) + range.size(); }

Ranges& ranges() {
  static Ranges ranges;
  return ranges;
}

}  // namespace

Result<DmabufRange> DmabufRange::open(int descriptor, std::uint64_t offset, std::size_t bytes) {
  const std::string what = "the dma-buf descriptor " + std::to_string(descriptor);
  if (bytes == 0) return fail(ErrorCode::invalid_argument, "a registered buffer needs one byte or more");
  struct stat status{};
  DmabufRange range;
  range.descriptor_ = Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, first_own_descriptor));
  if (!range.descriptor_.valid() || ::fstat(range.descriptor_.get(), &status) != 0) {
    const int error = errno;
    return fail(error == EMFILE ? ErrorCode::overloaded : ErrorCode::invalid_argument,
                what + " cannot be duplicated: " + std::strerror(error));
  }
  constexpr std::uint64_t most = std::uint64_t{1} << 62;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (offset > most || bytes > most || (size != 0 && (offset > size || bytes > size - offset))) {
    return fail(ErrorCode::invalid_argument, "the part of " + count_text(bytes, "byte") + " at " +
                                                 std::to_string(offset) + " is not within the " +
                                                 count_text(size, "byte") + " of " + what);
  }
  const std::size_t page_bytes = system_page_bytes();
  const std::size_t before = offset % page_bytes;
  const std::size_t reserved = (before + bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* const at = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    return fail(ErrorCode::overloaded, "there are no addresses for " + count_text(bytes, "byte") + " of " + what +
                                           ": " + std::strerror(errno));
  }
  range.pages_ = {static_cast<std::byte*>(at), reserved};
  {
    Ranges& known = ranges();
    const std::lock_guard lock(known.mutex);
    const auto behind = std::upper_bound(known.all.begin(), known.all.end(), range.pages_.data(),
                                         [](const std::byte* data, MutableBytes one) { return data < one.data(); });
    known.all.insert(behind, range.pages_);
    known.count.store(known.all.size(), std::memory_order_release);
  }
  range.addresses_ = range.pages_.subspan(before, bytes);
  range.offset_ = offset;
  return range;
}

DmabufRange::~DmabufRange() {
  if (pages_.empty()) return;
  {
    Ranges& known = ranges();
    const std::lock_guard lock(known.mutex);
    std::erase_if(known.all, [&](MutableBytes one) { return one.data() == pages_.data(); });
    known.count.store(known.all.size(), std::memory_order_release);
  }
  ::munmap(pages_.data(), pages_.size());
}

// Accesses on other threads look at the same time. A search takes time in proportion to the logarithm of the number of
// ranges, and is needed only for runs that do not lie between the same two ranges as the previous one.
bool DmabufRange::names(std::span<const TransferBatch::Run> runs) noexcept {
  Ranges& known = ranges();
  if (known.count.load(std::memory_order_acquire) == 0) return false;
  const std::shared_lock lock(known.mutex);
  // No range lies within these addresses.
  std::uintptr_t free_begin = 0;
  std::uintptr_t free_end = 0;
  for (const TransferBatch::Run& run : runs) {
    const auto begin = reinterpret_cast<std::uintptr_t>(run.memory);
    const std::uintptr_t end = begin + run.bytes;
    if ((begin >= free_begin && end <= free_end) || run.bytes == 0) continue;
    const auto behind = std::partition_point(known.all.begin(), known.all.end(),
                                             [&](MutableBytes one) { return end_of(one) <= begin; });
    free_begin = behind == known.all.begin() ? 0 : end_of(*std::prev(behind));
    free_end = behind == known.all.end() ? UINTPTR_MAX : begin_of(*behind);
    if (end > free_end) return true;
  }
  return false;
}

}  // namespace hawser
