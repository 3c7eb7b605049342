#include "transport/shm/memory/doorbell.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "os/passed_descriptors.h"

namespace hawser::transport::shm {

Doorbell::Doorbell(Descriptor socket) noexcept : socket_(std::move(socket)) {
  // Some may have arrived before.
  char byte = 0;
  only_bytes_ = refuse_descriptors(fd()) && recv(fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

void Doorbell::ring() const noexcept {
  const char byte = 1;
  [[maybe_unused]] const ssize_t sent = send(fd(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool Doorbell::silence() const noexcept {
  // An honest peer rings once each time that this side arms. A peer that rings without end is read once per event: the
  // remaining rings wake nobody, and the next one does.
  std::array<char, 1024> bytes;
  std::size_t bytes_max = bytes.size();
  if (!only_bytes_) {
    iovec space{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &space;
    message.msg_iovlen = 1;
    const ssize_t seen = recvmsg(fd(), &message, MSG_DONTWAIT | MSG_PEEK);
    if ((message.msg_flags & MSG_CTRUNC) != 0) return false;
    if (seen <= 0) return seen < 0 && (errno == EAGAIN || errno == EINTR);
    bytes_max = static_cast<std::size_t>(seen);
  }
  const ssize_t size = recv(fd(), bytes.data(), bytes_max, MSG_DONTWAIT);
  return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace hawser::transport::shm
