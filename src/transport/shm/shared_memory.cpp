#include "transport/shm/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace hawser::transport::shm {
namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string path_of(pid_t pid, int fd) { return "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd); }

std::unexpected<Error> refuse(std::string text) {
  return fail(ErrorCode::protocol_error, std::move(text), ErrorScope::connection, Initiator::peer);
}

}  // namespace

Error system_error(ErrorCode code, std::string_view what, int system_error) {
  return {code, ErrorScope::connection, Initiator::local, 0,
          std::string(what) + ": " + std::generic_category().message(system_error)};
}

Result<Descriptor> open_of_process(pid_t pid, int fd, mode_t type, int flags) {
  const Descriptor place(::open(path_of(pid, fd).c_str(), O_PATH | O_CLOEXEC));
  if (!place.valid()) {
    return std::unexpected(system_error(
        ErrorCode::unavailable,
        "cannot open what the peer shares by " + path_of(pid, fd) + " (both processes must run as the same user)",
        errno));
  }
  struct stat status{};
  if (fstat(place.get(), &status) != 0 || (status.st_mode & S_IFMT) != type) {
    return refuse("what the peer shares is not of the kind that it says");
  }
  Descriptor file(::open(path_of(getpid(), place.get()).c_str(), flags | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) {
    return std::unexpected(system_error(ErrorCode::unavailable, "cannot open what the peer shares", errno));
  }
  return file;
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::create(const Sizes& sizes, const Nonce& nonce) {
  Descriptor file(memfd_create("hawser", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) {
    return std::unexpected(system_error(ErrorCode::unavailable, "cannot make shared memory (raise ulimit -n?)", errno));
  }
  if (ftruncate(file.get(), static_cast<off_t>(sizes.total())) != 0 || fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
    return std::unexpected(system_error(ErrorCode::unavailable, "cannot size shared memory", errno));
  }
  std::shared_ptr<SharedMemory> memory(new SharedMemory(std::move(file), sizes));
  if (Result<void> mapped = memory->map(); !mapped) return std::unexpected(std::move(mapped.error()));
  memory->control().nonce = nonce;
  return memory;
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::open(pid_t pid, int fd, const Sizes& sizes, const Nonce& nonce) {
  Result<Descriptor> file = open_of_process(pid, fd, S_IFREG, O_RDWR);
  if (!file) return std::unexpected(std::move(file.error()));
  // Touching a page that the peer has cut off would kill us, and one of huge pages that are used up: neither can be.
  const int sealed = fcntl(file->get(), F_GET_SEALS);
  struct statfs system{};
  struct stat status{};
  if (sealed < 0 || (sealed & seals) != seals || fstatfs(file->get(), &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return refuse("the peer's shared memory is not sealed: it could be cut while it is in use");
  }
  if (fstat(file->get(), &status) != 0 || static_cast<std::size_t>(status.st_size) != sizes.total()) {
    return refuse("the peer's shared memory is not of the size that it says");
  }
  std::shared_ptr<SharedMemory> memory(new SharedMemory(std::move(*file), sizes));
  if (Result<void> mapped = memory->map(); !mapped) return std::unexpected(std::move(mapped.error()));
  if (std::memcmp(memory->control().nonce.data(), nonce.data(), nonce.size()) != 0) {
    return refuse("the shared memory found is another one than the peer's");
  }
  return memory;
}

Result<void> SharedMemory::map() {
  const auto failed = [] {
    return std::unexpected(system_error(ErrorCode::unavailable, "cannot map shared memory (see ulimit -v)", errno));
  };
  constexpr int access = PROT_READ | PROT_WRITE;
  void* const all = mmap(nullptr, sizes_.total(), access, MAP_SHARED, file_.get(), 0);
  if (all == MAP_FAILED) return failed();
  base_ = static_cast<std::byte*>(all);
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
  if (base_ != nullptr) munmap(base_, sizes_.total());
  for (std::byte* ring : rings_) {
    if (ring != nullptr) munmap(ring, 2 * sizes_.ring);
  }
}

bool SharedMemory::is_held_by(pid_t pid, int fd) const noexcept {
  const Descriptor place(::open(path_of(pid, fd).c_str(), O_PATH | O_CLOEXEC));
  struct stat theirs{};
  struct stat ours{};
  return place.valid() && fstat(place.get(), &theirs) == 0 && fstat(file_.get(), &ours) == 0 &&
         theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

}  // namespace hawser::transport::shm
