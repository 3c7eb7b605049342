#include "transport/shm/doorbell.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "transport/shm/layout.h"
#include "transport/shm/shared_memory.h"

namespace hawser::transport::shm {

Result<Doorbell> Doorbell::create() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return std::unexpected(system_error(ErrorCode::unavailable, "cannot make a pipe (raise ulimit -n?)", errno));
  }
  const Descriptor reading(ends[0]);
  const Descriptor writing(ends[1]);
  Result<Doorbell> bell = open(getpid(), reading.get());
  // A user may have so many pipes of the usual size only.
  if (bell) fcntl(bell->fd(), F_SETPIPE_SZ, static_cast<int>(page_bytes));
  return bell;
}

Result<Doorbell> Doorbell::open(int pid, int fd) {
  Result<Descriptor> pipe = open_of_process(pid, fd, S_IFIFO, O_RDWR | O_NONBLOCK);
  if (!pipe) return std::unexpected(std::move(pipe.error()));
  return Doorbell(std::move(*pipe));
}

void Doorbell::ring() const noexcept {
  const char byte = 1;
  [[maybe_unused]] const ssize_t written = write(fd(), &byte, 1);
}

void Doorbell::silence() const noexcept {
  std::array<char, 256> bytes;
  while (read(fd(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())) {
  }
}

}  // namespace hawser::transport::shm
