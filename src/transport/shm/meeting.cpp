#include "transport/shm/meeting.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/kernel_random.h"
#include "base/try.h"
#include "os/passed_descriptors.h"
#include "transport/shm/helpers.h"

namespace hawser::transport::shm {
namespace {

struct MeetingAddress {
  sockaddr_un where{};
  socklen_t size = 0;
};

// The fixed prefix ensures that a name from a peer can only lead to a socket of this transport.
MeetingAddress address_of(const Token& name) {
  static constexpr std::string_view prefix = "hawser-shm-";
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text(1, '\0');
  text += prefix;
  for (const std::byte byte : name) {
    text += digits[std::to_integer<std::size_t>(byte) >> 4];
    text += digits[std::to_integer<std::size_t>(byte) & 15];
  }
  MeetingAddress address;
  address.where.sun_family = AF_UNIX;
  std::memcpy(address.where.sun_path, text.data(), text.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  return address;
}

Descriptor unix_socket() { return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

std::unexpected<Error> unavailable(std::string_view what) {
  return fail(system_error(ErrorCode::unavailable, what, errno));
}

// Returns the only descriptor that comes with exactly `secret`. Every other descriptor goes to `helpers` to be closed.
std::optional<Descriptor> receive(int socket, const Token& secret, Helpers& helpers) {
  std::array<std::byte, std::tuple_size_v<Token> + 1> bytes{};
  // There is room for one descriptor; alignment may make it room for two. The kernel drops descriptors for which there
  // is no room.
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec space{bytes.data(), secret.size()};
  msghdr message{};
  message.msg_iov = &space;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  // MSG_PEEK leaves the message in the socket. Otherwise the kernel would close descriptors here for which there is no
  // room.
  const ssize_t size = recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_PEEK);
  if (size != static_cast<ssize_t>(secret.size()) || std::memcmp(bytes.data(), secret.data(), secret.size()) != 0 ||
      recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_PEEK) != size) {
    return std::nullopt;
  }
  std::vector<Descriptor> found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      found.emplace_back(fd);
    }
  }
  const bool known = found.size() == 1 && (message.msg_flags & MSG_CTRUNC) == 0;
  if (known && recv(socket, bytes.data(), secret.size(), MSG_DONTWAIT) == size) return std::move(found.front());
  for (Descriptor& one : found) helpers.dispose(std::move(one));
  return std::nullopt;
}

}  // namespace

Error system_error(ErrorCode code, std::string_view what, int system_error) {
  return Error::of_connection(code, std::string(what) + ": " + std::generic_category().message(system_error));
}

Result<Token> random_token() {
  Token token{};
  try {
    fill_random(token);
  } catch (const std::system_error& error) {
    return fail(system_error(ErrorCode::unavailable, "cannot get random numbers", error.code().value()));
  }
  return token;
}

Result<PeerIdentity> identify(const Doorbell& bell) {
  ucred found{};
  socklen_t size = sizeof found;
  if (getsockopt(bell.fd(), SOL_SOCKET, SO_PEERCRED, &found, &size) != 0) {
    return unavailable("cannot determine which process is the peer");
  }
  if (found.uid != geteuid()) {
    return fail(Error::of_connection(Initiator::peer, ErrorCode::unavailable,
                                     "the peer's process runs as user " + std::to_string(found.uid) +
                                         " and this one as user " + std::to_string(geteuid()) +
                                         ": shared memory is for processes of one user"));
  }
  return PeerIdentity{found.pid, found.uid, found.gid};
}

Result<MeetingSocket> MeetingSocket::listen() {
  TRY(const Token& name, random_token());
  Descriptor socket = unix_socket();
  if (!socket.valid()) return unavailable("cannot make a Unix socket (raise ulimit -n?)");
  const MeetingAddress address = address_of(name);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.where), address.size) != 0 ||
      ::listen(socket.get(), backlog) != 0) {
    return unavailable("cannot listen on an abstract Unix socket");
  }
  return MeetingSocket(std::move(socket), name);
}

Result<MetPeer> MeetingSocket::accept(const Token& secret, Helpers& helpers) const {
  // Every process of the network namespace can see the name and connect, so the secret is checked.
  for (int i = 0; i <= backlog && helpers.may_receive(); ++i) {
    Descriptor socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno == EAGAIN) break;
      return unavailable("cannot accept on a Unix socket (raise ulimit -n?)");
    }
    std::optional<Descriptor> memory = receive(socket.get(), secret, helpers);
    if (!memory) {
      helpers.dispose_socket(std::move(socket));
      continue;
    }
    Doorbell bell(std::move(socket));
    Result<PeerIdentity> peer = identify(bell);
    if (!peer) {
      helpers.dispose(std::move(*memory));
      helpers.dispose_socket(bell.take());
      return fail(std::move(peer.error()));
    }
    return MetPeer{std::move(bell), *peer, std::move(*memory)};
  }
  return fail(Error::of_connection(Initiator::peer, ErrorCode::unavailable,
                                   "the client has not come to the Unix socket on which shared memory is passed"));
}

void MeetingSocket::close(Helpers& helpers) noexcept {
  Descriptor socket = std::move(socket_);
  if (!socket.valid() || !helpers.is_ours()) return;
  shutdown(socket.get(), SHUT_RDWR);
  Descriptor unasked(accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!unasked.valid() && (errno == EINVAL || errno == EAGAIN)) return;
  helpers.dispose_socket(std::move(unasked));
  helpers.dispose(std::move(socket));
}

Result<Doorbell> meet(const Token& name, const Token& secret, int memory) {
  Descriptor socket = unix_socket();
  if (!socket.valid()) return unavailable("cannot make a Unix socket (raise ulimit -n?)");
  refuse_descriptors(socket.get());
  const MeetingAddress address = address_of(name);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.where), address.size) != 0) {
    return unavailable("cannot connect to the server's Unix socket for shared memory");
  }
  if (!pass_descriptors(socket.get(), secret, std::span(&memory, 1))) {
    return unavailable("cannot send on a Unix socket");
  }
  return Doorbell(std::move(socket));
}

}  // namespace hawser::transport::shm
