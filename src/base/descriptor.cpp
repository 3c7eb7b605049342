#include "base/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hawser {

int above_standard(int fd) noexcept {
  if (fd < 0) return -1;
  if (fd >= first_own_descriptor) return fd;
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, first_own_descriptor);
  const int error = errno;
  close(fd);
  if (copy < 0) errno = error;
  return copy;
}

void open_standard_descriptors() noexcept {
  for (int fd = 0; fd < first_own_descriptor; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // Children get it, like an open standard descriptor. The kernel gives the lowest number that is free.
    const int made = open("/dev/null", O_RDWR);
    if (made >= first_own_descriptor) close(made);  // Another thread was faster.
  }
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace hawser
