#include "block/nbd/listening.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <expected>
#include <memory>
#include <string_view>
#include <utility>

#include "block/store/store_error.h"
#include "process/unix_listener.h"

namespace hawser::block::nbd {
namespace {

constexpr int backlog = 128;
constexpr std::string_view unix_prefix = "unix:";
constexpr std::string_view passed_prefix = "fd:";

std::unexpected<Error> no_listening(int number, const std::string& address) {
  return system_fail(number, "listen for NBD at " + address);
}

// The address at which a socket listens. Empty if it is not a socket.
std::string address_of(int descriptor) {
  sockaddr_storage where{};
  socklen_t size = sizeof(where);
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&where), &size) != 0) return {};
  if (where.ss_family == AF_UNIX) {
    const auto& local = reinterpret_cast<const sockaddr_un&>(where);
    std::string_view path(local.sun_path, size - offsetof(sockaddr_un, sun_path));
    const bool abstract = path.starts_with('\0');
    if (abstract) return std::string("unix:@").append(path.substr(1));
    return std::string(unix_prefix).append(path.substr(0, path.find('\0')));
  }
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  ::getnameinfo(reinterpret_cast<sockaddr*>(&where), size, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
  return where.ss_family == AF_INET6 ? '[' + std::string(host) + "]:" + port : std::string(host) + ':' + port;
}

// The number of a passed socket, or -1.
int passed_descriptor(std::string_view address) {
  int number = -1;
  const std::string_view text = address.substr(passed_prefix.size());
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && rest == text.data() + text.size() ? number : -1;
}

int socket_option(int descriptor, int name) noexcept {
  int value = 0;
  socklen_t size = sizeof(value);
  return ::getsockopt(descriptor, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

}  // namespace

Result<NbdListening> NbdListening::open(const std::string& address) {
  if (address.starts_with(unix_prefix)) {
    Result<process::UnixListener> socket = process::listen_at_unix(address, backlog);
    if (!socket) return std::unexpected(std::move(socket.error()));
    return NbdListening(SocketDescriptor(socket->descriptor), address, std::move(socket->file));
  }
  if (address.starts_with(passed_prefix)) return open_passed(address);
  return open_tcp(address);
}

std::string NbdListening::resolve(const std::string& address) {
  return address.starts_with(passed_prefix) ? address_of(passed_descriptor(address)) : address;
}

Result<NbdListening> NbdListening::open_tcp(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return store_fail(EINVAL, "\"" + address + "\" is not an address: use HOST:PORT, unix:/path or unix:@name");
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error =
          ::getaddrinfo(host.empty() ? nullptr : host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
      error != 0) {
    return store_fail(EINVAL, "cannot listen for NBD at " + address + ": " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  SocketDescriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!socket.valid() || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(socket.get(), backlog) != 0) {
    return no_listening(errno, address);
  }
  const std::string bound = address_of(socket.get());
  return NbdListening(std::move(socket), address.substr(0, colon) + bound.substr(bound.rfind(':')), {});
}

Result<NbdListening> NbdListening::open_passed(const std::string& address) {
  const int passed = passed_descriptor(address);
  if (socket_option(passed, SO_TYPE) != SOCK_STREAM || socket_option(passed, SO_ACCEPTCONN) != 1) {
    return store_fail(EINVAL, "\"" + address + "\" is not one listening TCP or Unix socket: pass one to the process, " +
                                  "such as that of a systemd .socket unit");
  }
  if (::fcntl(passed, F_SETFD, FD_CLOEXEC) != 0 ||
      ::fcntl(passed, F_SETFL, ::fcntl(passed, F_GETFL) | O_NONBLOCK) != 0) {
    return no_listening(errno, address);
  }
  return NbdListening(SocketDescriptor(passed), address_of(passed), {});
}

}  // namespace hawser::block::nbd
