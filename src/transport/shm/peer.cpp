#include "transport/shm/peer.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>

#include "transport/shm/shared_memory.h"

namespace hawser::transport::shm {

PeerProcess::PeerProcess(pid_t pid) noexcept
    : pid_(pid), descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0U))) {}

bool PeerProcess::lives() const noexcept {
  return descriptor_.valid() && syscall(SYS_pidfd_send_signal, descriptor_.get(), 0, nullptr, 0U) == 0;
}

Result<void> PeerProcess::read(std::span<const RemotePiece> pieces, MutableBytes to) const {
  std::size_t done = 0;
  for (const RemotePiece& piece : pieces) {
    assert(piece.bytes <= to.size() - done);
    for (std::size_t at = 0; at < piece.bytes;) {
      iovec local{to.data() + done, piece.bytes - at};
      iovec remote{reinterpret_cast<void*>(piece.address + at), piece.bytes - at};
      const ssize_t size = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
      if (size <= 0) {
        const int error = size == 0 ? EFAULT : errno;
        Error reason = system_error(ErrorCode::unavailable, "cannot read the peer's memory", error);
        reason.scope = error == EFAULT  ? ErrorScope::call
                       : error == ESRCH ? ErrorScope::connection
                                        : ErrorScope::transport;
        reason.initiator = Initiator::peer;
        return std::unexpected(std::move(reason));
      }
      at += static_cast<std::size_t>(size);
      done += static_cast<std::size_t>(size);
    }
  }
  // Were it dead, what was read may be another process's.
  if (!lives()) return fail(ErrorCode::unavailable, "the peer has died", ErrorScope::connection, Initiator::peer);
  return {};
}

}  // namespace hawser::transport::shm
