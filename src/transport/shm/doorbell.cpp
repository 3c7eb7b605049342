#include "transport/shm/doorbell.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace hawser::transport::shm {

void Doorbell::ring() const noexcept {
  const char byte = 1;
  [[maybe_unused]] const ssize_t sent = send(fd(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool Doorbell::silence() const noexcept {
  // A peer rings once for each time that we have armed. One that rings without end is read once for each event: a ring that
  // is left there wakes nobody, the next one does.
  std::array<char, 1024> bytes;
  const ssize_t size = recv(fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace hawser::transport::shm
