#include "base/dmabuf_range.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace hawser {
namespace {

constexpr std::size_t page_bytes = 4096;

// All ranges of the process: an access may go over a connection of another client than the one that a range was made
// with, for example after a failover of StripedMemory.
struct Ranges {
  std::mutex mutex;
  std::vector<MutableBytes> all;       // Guarded by the mutex.
  std::atomic<std::size_t> count = 0;  // The size of `all`.
};

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
  range.descriptor_ = Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!range.descriptor_.valid() || ::fstat(range.descriptor_.get(), &status) != 0) {
    const int error = errno;
    return fail(error == EMFILE ? ErrorCode::overloaded : ErrorCode::invalid_argument,
                what + " cannot be duplicated: " + std::strerror(error));
  }
  constexpr std::uint64_t most = std::uint64_t{1} << 62;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (offset > most || bytes > most || (size != 0 && (offset > size || bytes > size - offset))) {
    return fail(ErrorCode::invalid_argument, std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                                                 " are not within the " + std::to_string(size) + " bytes of " + what);
  }
  const std::size_t before = offset % page_bytes;
  const std::size_t reserved = (before + bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* const at = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    return fail(ErrorCode::overloaded, "there are no addresses for " + std::to_string(bytes) + " bytes of " + what +
                                           ": " + std::strerror(errno));
  }
  range.pages_ = {static_cast<std::byte*>(at), reserved};
  {
    Ranges& known = ranges();
    const std::lock_guard lock(known.mutex);
    known.all.push_back(range.pages_);
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

bool DmabufRange::names(std::span<const TransferBatch::Run> runs) noexcept {
  Ranges& known = ranges();
  if (known.count.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(known.mutex);
  return std::any_of(runs.begin(), runs.end(), [&](const TransferBatch::Run& run) {
    return std::any_of(known.all.begin(), known.all.end(), [&](MutableBytes one) {
      return run.bytes != 0 && run.memory < one.data() + one.size() && one.data() < run.memory + run.bytes;
    });
  });
}

}  // namespace hawser
