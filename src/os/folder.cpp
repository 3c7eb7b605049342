#include "os/folder.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <system_error>

namespace hawser {
namespace {

// O_NONBLOCK: a pipe that nobody writes would hold the thread.
constexpr int file_flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// Without openat2() (Linux before 5.6, or a filter of system calls): one segment after another, and no links at all.
int open_by_segments(int folder, const std::string& name) noexcept {
  Descriptor held;
  int at = folder;
  std::string_view rest = name;
  try {
    for (;;) {
      const std::string segment(rest.substr(0, rest.find('/')));
      if (segment.empty() || segment == "." || segment == "..") {
        errno = ENOENT;
        return -1;
      }
      const bool last = segment.size() == rest.size();
      const int flags = last ? file_flags | O_NOFOLLOW : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
      const int opened = above_standard(::openat(at, segment.c_str(), flags));
      if (opened < 0 || last) return opened;
      held = Descriptor(opened);
      at = held.get();
      rest.remove_prefix(segment.size() + 1);
    }
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

int open_beneath(int folder, const std::string& name) noexcept {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(file_flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  constexpr int tries_max = 100;
  for (int i = 0;; ++i) {
    const auto opened = static_cast<int>(::syscall(SYS_openat2, folder, name.c_str(), &how, sizeof how));
    // EAGAIN: something was renamed while a ".." of a link was followed.
    if (opened < 0 && (errno == EINTR || errno == EAGAIN) && i < tries_max) continue;
    if (opened < 0 && (errno == ENOSYS || errno == EPERM)) return open_by_segments(folder, name);
    return opened;
  }
}

}  // namespace

Folder::Folder(const std::string& path) : folder_(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  if (!folder_.valid()) throw std::system_error(errno, std::system_category(), "hawser: the folder " + path);
}

Result<OpenFile> Folder::open(const std::string& name) const {
  const auto none = [] { return fail(ErrorCode::unknown_method, "there is no such file"); };
  if (name.empty() || name.contains('\0')) return none();
  OpenFile found;
  found.file = Descriptor(open_beneath(folder_.get(), name));
  if (!found.file.valid()) {
    const int reason = errno;
    if (reason == EACCES || reason == EPERM) return fail(ErrorCode::permission_denied, "the file may not be read");
    if (reason == EMFILE || reason == ENFILE || reason == ENOMEM || reason == EIO) {
      return fail(ErrorCode::unavailable, std::string("the file cannot be opened now: ") + std::strerror(reason));
    }
    return none();
  }
  struct stat facts{};
  if (::fstat(found.file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return none();
  found.bytes = static_cast<std::uint64_t>(facts.st_size);
  found.changed_s = facts.st_mtim.tv_sec;
  found.changed_ns = static_cast<std::uint32_t>(facts.st_mtim.tv_nsec);
  found.inode = facts.st_ino;
  return found;
}

Result<std::size_t> OpenFile::read(std::uint64_t from, MutableBytes to) const {
  std::size_t got = 0;
  while (got < to.size()) {
    const ssize_t size = ::pread(file.get(), to.data() + got, to.size() - got, static_cast<off_t>(from + got));
    if (size == 0) break;
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail(ErrorCode::unavailable, std::string("the file cannot be read: ") + std::strerror(errno));
    got += static_cast<std::size_t>(size);
  }
  return got;
}

}  // namespace hawser
