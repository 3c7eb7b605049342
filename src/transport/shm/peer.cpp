#include "transport/shm/peer.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hawser::transport::shm {

namespace {

Descriptor process_of(pid_t pid, const Doorbell& bell) noexcept {
  // SO_PEERPIDFD, Linux 6.5: returns the process that connected, even if its number was given to another process.
  constexpr int peer_pidfd = 77;
  int fd = -1;
  socklen_t size = sizeof fd;
  if (getsockopt(bell.fd(), SOL_SOCKET, peer_pidfd, &fd, &size) == 0) return Descriptor(fd);
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0U)));
}

}  // namespace

PeerProcess::PeerProcess(const PeerIdentity& identity, const Doorbell& bell) noexcept
    : pid_(identity.pid), descriptor_(process_of(identity.pid, bell)) {}

bool PeerProcess::lives() const noexcept {
  return descriptor_.valid() && syscall(SYS_pidfd_send_signal, descriptor_.get(), 0, nullptr, 0U) == 0;
}

bool PeerProcess::may_be_read() const noexcept {
  if (pid_ <= 0 || !lives()) return false;
  // No process has memory at the highest addresses, which belong to the kernel. The lowest addresses are not suitable,
  // because root may map them to memory that does not answer. The kernel checks the permission first, then the address.
  char byte = 0;
  const iovec local{&byte, 1};
  const iovec remote{reinterpret_cast<void*>(~std::uintptr_t{4095}), 1};
  return process_vm_readv(pid_, &local, 1, &remote, 1, 0) < 0 && errno == EFAULT && lives();
}

Result<void> PeerProcess::read(const PeerBuffer& from, std::byte* to) const {
  for (std::size_t at = 0; at < from.bytes;) {
    const iovec local{to + at, from.bytes - at};
    const iovec remote{reinterpret_cast<void*>(from.address + at), from.bytes - at};
    const ssize_t size = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    if (size <= 0) {
      const int error = size == 0 ? EFAULT : errno;
      Error reason = system_error(ErrorCode::unavailable, "cannot read the peer's memory", error);
      reason.scope = error == EFAULT  ? ErrorScope::call
                     : error == ESRCH ? ErrorScope::connection
                                      : ErrorScope::transport;
      reason.initiator = Initiator::peer;
      return fail(std::move(reason));
    }
    at += static_cast<std::size_t>(size);
  }
  // If the peer died, the bytes may be those of another process.
  if (!lives()) return fail(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "the peer has died"));
  return {};
}

}  // namespace hawser::transport::shm
