#include "block/store/disk_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

#include "block/random_id.h"
#include "block/store/store_error.h"

namespace hawser::block {

namespace {

// Zeros at an address that O_DIRECT accepts.
struct alignas(file_alignment) ZeroChunk {
  std::byte bytes[64 * 1024] = {};
};
const ZeroChunk zero_chunk;

int open_retrying(const char* path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path, flags, 0600);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// Descriptors that files leave to the rest of the process: its listener, and some connections.
constexpr rlim_t descriptors_left = 32;

rlim_t descriptors_max() noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::unexpected<Error> open_failed(int number, const std::string& path) {
  if (number != EMFILE) return system_fail(number, "open " + path);
  return store_fail(number, "cannot open " + path + ": this process may have " + std::to_string(descriptors_max()) +
                                " open files (RLIMIT_NOFILE), a volume needs 2 and a connection 1: raise the limit "
                                "(`ulimit -n`, or LimitNOFILE= of systemd)");
}

// The start of a server that follows has another medium then: a full disk leaves the mark empty, with the time of the
// loss. If the file system takes no change, nothing can be done.
void mark_loss(const std::filesystem::path& mark) noexcept {
  if (mark.empty()) return;
  const int descriptor = ::open(mark.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return;
  auto id = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  try {
    id = random_number();
  } catch (const std::exception&) {
    // Any other content serves.
  }
  char text[17] = {};
  const int length = std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(id));
  (void)!::write(descriptor, text, static_cast<std::size_t>(length));
  ::close(descriptor);
}

}  // namespace

DiskFile::DiskFile(int descriptor, std::string path, const DiskFileOptions& options)
    : descriptor_(descriptor), path_(std::move(path)), loss_mark_(options.loss_mark), direct_(options.direct) {}

DiskFile::~DiskFile() { ::close(descriptor_); }

std::unexpected<Error> DiskFile::failed(const char* action, int number) const {
  return system_fail(number, std::string(action) + " " + path_);
}

Result<std::unique_ptr<File>> DiskFile::open(const std::filesystem::path& path, const DiskFileOptions& options) {
  int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (options.read_only ? O_RDONLY : O_RDWR);
  if (options.create) flags |= O_CREAT | O_EXCL;
  DiskFileOptions used = options;
  int descriptor = open_retrying(path.c_str(), flags | (used.direct ? O_DIRECT : 0));
  if (descriptor < 0 && used.direct && errno == EINVAL) {
    used.direct = false;
    // A file system may refuse O_DIRECT after it has made the file.
    descriptor = open_retrying(path.c_str(), flags & ~O_EXCL);
  }
  const std::string shown = (options.shown_as.empty() ? path : options.shown_as).string();
  if (descriptor < 0) return open_failed(errno, shown);
  auto file = std::make_unique<DiskFile>(descriptor, shown, used);
  // Descriptors have the lowest numbers that are free.
  if (static_cast<rlim_t>(descriptor) + descriptors_left >= descriptors_max()) return open_failed(EMFILE, shown);
  struct stat status{};
  if (fstat(descriptor, &status) != 0) return file->failed("read the status of", errno);
  if (!S_ISREG(status.st_mode)) return store_fail(EINVAL, shown + " is not a regular file");
  if (options.lock && flock(descriptor, (options.read_only ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return file->failed("lock", errno);
    return store_fail(EBUSY, "another process uses " + shown + ": end it");
  }
  return file;
}

// Some file systems accept the flag and refuse the accesses. The file is used through the cache from then on.
bool DiskFile::leave_direct(int number, bool was_direct) noexcept {
  if (number != EINVAL || !was_direct) return false;  // Another access may have cleared the flag since.
  const int flags = fcntl(descriptor_, F_GETFL);
  if (flags < 0 || fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT) != 0) return false;
  direct_ = false;
  return true;
}

Result<void> DiskFile::read(std::uint64_t offset, MutableBytes into) {
  while (!into.empty()) {
    const bool was_direct = direct_;
    const ssize_t got = ::pread(descriptor_, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR || leave_direct(errno, was_direct)) continue;
      return failed("read", errno);
    }
    if (got == 0) {
      std::ranges::fill(into, std::byte{});
      return {};
    }
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<void> DiskFile::write(std::uint64_t offset, Bytes bytes) {
  while (!bytes.empty()) {
    const bool was_direct = direct_;
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR || leave_direct(errno, was_direct)) continue;
      return failed("write", errno);
    }
    if (written == 0) return failed("write", EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Result<void> DiskFile::sync() {
  // Linux reports a failed write to one of the calls that run at once, and to no later one. So one call runs at a time,
  // serves all that waited for it, and its error is the result of all later ones.
  std::unique_lock lock(sync_mutex_);
  const std::uint64_t needed = syncs_begun_ + 1;
  while (syncs_ended_ < needed && sync_error_ == 0) {
    if (syncs_begun_ != syncs_ended_) {
      synced_.wait(lock);
      continue;
    }
    ++syncs_begun_;
    lock.unlock();
    int number = 0;
    do {
      number = ::fdatasync(descriptor_) == 0 ? 0 : errno;
    } while (number == EINTR);
    if (number != 0) mark_loss(loss_mark_);
    lock.lock();
    if (number != 0) sync_error_ = number;
    ++syncs_ended_;
    synced_.notify_all();
  }
  return sync_error_ == 0 ? Result<void>{} : failed("sync", sync_error_);
}

Result<void> DiskFile::allocate(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return {};
  while (::fallocate(descriptor_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    return failed("reserve space for", errno);
  }
  return {};
}

Result<void> DiskFile::write_zeros(std::uint64_t offset, std::uint64_t bytes) {
  while (bytes > 0) {
    const std::size_t part = std::min<std::uint64_t>(bytes, sizeof(zero_chunk.bytes));
    if (Result<void> written = write(offset, Bytes(zero_chunk.bytes, part)); !written) return written;
    offset += part;
    bytes -= part;
  }
  return {};
}

Result<void> DiskFile::zero(std::uint64_t offset, std::uint64_t bytes, bool deallocate) {
  if (bytes == 0) return {};
  const int mode = FALLOC_FL_KEEP_SIZE | (deallocate ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE);
  while (::fallocate(descriptor_, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return write_zeros(offset, bytes);
    return failed("write zeros to", errno);
  }
  return {};
}

Result<void> DiskFile::resize(std::uint64_t bytes) {
  while (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return failed("resize", errno);
  }
  return {};
}

// The descriptor stays, because other threads may use it. A file that has another name is kept.
void DiskFile::release_removed() noexcept {
  struct stat status{};
  if (fstat(descriptor_, &status) != 0 || status.st_nlink != 0) return;
  // If it fails, the space is released with the descriptor.
  while (::ftruncate(descriptor_, 0) != 0 && errno == EINTR) {
  }
}

Result<std::uint64_t> DiskFile::size() {
  struct stat status{};
  if (fstat(descriptor_, &status) != 0) return failed("read the size of", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

Result<std::uint64_t> DiskFile::allocated() {
  struct stat status{};
  if (fstat(descriptor_, &status) != 0) return failed("read the size of", errno);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

Result<void> make_folders(const std::filesystem::path& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder);
  std::filesystem::path made;
  for (const std::filesystem::path& part : path) {
    const std::filesystem::path parent = std::exchange(made, made / part);
    std::error_code error;
    if (std::filesystem::is_directory(made, error)) continue;
    const bool created = std::filesystem::create_directory(made, error);
    if (error) return system_fail(error.value(), "make the folder " + made.string());
    if (!created) continue;
    if (Result<void> synced = sync_folder(parent); !synced) return synced;
  }
  return {};
}

Result<void> sync_folder(const std::filesystem::path& folder) {
  const int descriptor = open_retrying(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return system_fail(errno, "open the folder " + folder.string());
  const int synced = ::fsync(descriptor);
  const int number = errno;
  ::close(descriptor);
  if (synced != 0) return system_fail(number, "sync the folder " + folder.string());
  return {};
}

}  // namespace hawser::block
