#include "transport/shm/memory/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "base/write_signals.h"
#include "heap/allocation_hook.h"
#include "transport/shm/meeting.h"

namespace hawser::transport::shm {
namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::unexpected<Error> refuse(std::string text) {
  return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, std::move(text)));
}

}  // namespace

bool SharedMemory::counted_strictly() {
  std::ifstream file("/proc/sys/vm/overcommit_memory");
  int mode = 0;
  return file >> mode && mode == 2;
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::create(const Sizes& sizes, bool strict) {
  Descriptor file(memfd_create("hawser", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) {
    return fail(system_error(ErrorCode::unavailable, "cannot make shared memory (raise ulimit -n?)", errno));
  }
  // The limit of files applies to shared memory too.
  const WriteSignalsBlocked no_signal;
  if (ftruncate(file.get(), static_cast<off_t>(sizes.total())) != 0 || fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
    return fail(system_error(ErrorCode::unavailable,
                             "cannot make shared memory of " + std::to_string(sizes.total()) + " bytes" +
                                 (errno == EFBIG ? " (raise ulimit -f)" : ""),
                             errno));
  }
  std::shared_ptr<SharedMemory> memory(new SharedMemory(std::move(file), sizes, strict));
  TRY(memory->map());
  return memory;
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::adopt(Descriptor& file, const Sizes& sizes, bool strict) {
  // This check comes first, because no other call is sure to return at once on a file of any kind.
  const int sealed = fcntl(file.get(), F_GET_SEALS);
  if (sealed < 0) return refuse("what the peer has passed is not shared memory");
  // The process would be killed by touching a page that the peer has cut off, or a huge page when no more are
  // available. Seals and file system exclude both.
  struct statfs system{};
  struct stat status{};
  if ((sealed & seals) != seals || fstatfs(file.get(), &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return refuse("the peer's shared memory is not sealed: it could be cut while it is in use");
  }
  if (fstat(file.get(), &status) != 0 || static_cast<std::size_t>(status.st_size) != sizes.total()) {
    return refuse("the peer's shared memory has " + count_text(static_cast<std::uint64_t>(status.st_size), "byte") +
                  " where " + std::to_string(sizes.total()) + " were agreed on");
  }
  std::shared_ptr<SharedMemory> memory(new SharedMemory(std::move(file), sizes, strict));
  if (Result<void> mapped = memory->map(); !mapped) {
    file = std::move(memory->file_);
    return fail(std::move(mapped.error()));
  }
  return memory;
}

bool SharedMemory::supply(std::size_t at, std::size_t bytes) const noexcept {
  constexpr int populate_write = 23;            // MADV_POPULATE_WRITE, Linux 5.14. Earlier kernels do not have it.
  const std::size_t before = at % sizes_.page;  // A page may be larger than a chunk of a slab.
  while (madvise(base_ + at - before, before + bytes, populate_write) != 0) {
    // A filter of system calls may refuse every advice. Memory that is absent is an error of another kind.
    if (errno == EINVAL || errno == EPERM || errno == EACCES || errno == ENOSYS) return true;
    if (errno != EINTR && errno != EAGAIN) return false;
  }
  return true;
}

Result<void> SharedMemory::map() {
  const auto failed = [] {
    return fail(system_error(ErrorCode::unavailable, "cannot map shared memory (see ulimit -v)", errno));
  };
  constexpr int access = PROT_READ | PROT_WRITE;
  void* const all = mmap(nullptr, sizes_.total(), access, MAP_SHARED, file_.get(), 0);
  if (all == MAP_FAILED) return failed();
  base_ = static_cast<std::byte*>(all);
  detail::allocation_hook::allocated(base_, sizes_.total(), __builtin_return_address(0));
  if (strict_ && !supply(0, sizes_.slab_at(server_side))) {
    return fail(Error::of_connection(
        ErrorCode::unavailable,
        "the system has no memory for a connection's rings (" + std::to_string(sizes_.slab_at(server_side)) +
            " bytes; vm.overcommit_memory is 2): raise vm.overcommit_ratio, or lower ShmOptions::ring_bytes"));
  }
  for (const std::size_t side : {server_side, client_side}) {
    void* const twice = mmap(nullptr, 2 * sizes_.ring, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (twice == MAP_FAILED) return failed();
    rings_[side] = static_cast<std::byte*>(twice);
    for (const std::size_t half : {0U, 1U}) {
      if (mmap(rings_[side] + half * sizes_.ring, sizes_.ring, access, MAP_SHARED | MAP_FIXED, file_.get(),
               static_cast<off_t>(sizes_.ring_at(side))) == MAP_FAILED) {
        return failed();
      }
    }
  }
  return {};
}

SharedMemory::~SharedMemory() {
  detail::allocation_hook::freed(base_);
  if (base_ != nullptr) munmap(base_, sizes_.total());
  for (std::byte* ring : rings_) {
    if (ring != nullptr) munmap(ring, 2 * sizes_.ring);
  }
}

}  // namespace hawser::transport::shm
