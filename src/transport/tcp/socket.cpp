#include "transport/tcp/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <system_error>

namespace hawser::transport {

Result<HostPort> parse_host_port(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == address.size()) {
    return fail(Error::of_connection(
        ErrorCode::invalid_argument,
        "'" + std::string(address) + "' is not an address: write host:port, such as 127.0.0.1:9000 or [::1]:9000"));
  }
  if (address.find("://") != std::string_view::npos) {
    return fail(Error::of_connection(
        ErrorCode::invalid_argument,
        "'" + std::string(address) + "' is a URL: write its host and its port alone, such as 127.0.0.1:9000"));
  }
  std::string_view host = address.substr(0, colon);
  const std::string_view port = address.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string_view::npos) {
    return fail(Error::of_connection(
        ErrorCode::invalid_argument,
        "'" + std::string(address) + "' has several colons: write an IPv6 address in brackets, such as [::1]:9000"));
  }
  // The resolver would use only the part before the zero. That is a different host than the whole name, which may have
  // been checked elsewhere.
  if (host.find('\0') != std::string_view::npos) {
    return fail(Error::of_connection(ErrorCode::invalid_argument,
                                     "the host in '" + std::string(address) + "' contains a zero byte: remove it"));
  }
  unsigned long number = 0;
  for (const char c : port) {
    if (c < '0' || c > '9' || (number = number * 10 + static_cast<unsigned long>(c - '0')) > 65535) {
      return fail(Error::of_connection(
          ErrorCode::invalid_argument,
          "'" + std::string(port) + "' in '" + std::string(address) + "' is not a port: use 0 to 65535"));
    }
  }
  return HostPort{host == "*" ? std::string() : std::string(host), std::string(port)};
}

Result<std::vector<SocketAddress>> resolve(const HostPort& where, bool passive, bool may_block) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0) | (may_block ? 0 : AI_NUMERICHOST);
  addrinfo* found = nullptr;
  const int status = getaddrinfo(where.host.empty() ? nullptr : where.host.c_str(), where.port.c_str(), &hints, &found);
  if (status != 0) {
    return fail(
        Error::of_connection(ErrorCode::unavailable, "cannot resolve '" + where.host + "': " + gai_strerror(status)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
    // /etc/hosts may have an address twice.
    const auto same = [&](const SocketAddress& known) {
      return known.size == address.size && std::memcmp(&known.storage, &address.storage, address.size) == 0;
    };
    if (std::ranges::none_of(addresses, same)) addresses.push_back(address);
  }
  return addresses;
}

Result<std::optional<SocketAddress>> parse_unix(std::string_view address) {
  constexpr std::string_view scheme = "unix:";
  if (!address.starts_with(scheme)) return std::nullopt;
  const std::string_view name = address.substr(scheme.size());
  SocketAddress result;
  auto& storage = reinterpret_cast<sockaddr_un&>(result.storage);
  const bool abstract = name.starts_with('@');
  if (name.size() < (abstract ? 2U : 1U) || name.find('\0') != std::string_view::npos) {
    return fail(
        Error::of_connection(ErrorCode::invalid_argument,
                             "'" + std::string(address) + "' names no Unix socket: write unix:/path or unix:@name"));
  }
  if (name.size() >= sizeof storage.sun_path) {
    return fail(Error::of_connection(ErrorCode::invalid_argument,
                                     "'" + std::string(address) + "' is longer than a Unix socket's name may be (" +
                                         std::to_string(sizeof storage.sun_path - 1) + " bytes)"));
  }
  storage.sun_family = AF_UNIX;
  std::memcpy(storage.sun_path, name.data(), name.size());
  if (abstract) storage.sun_path[0] = '\0';
  // An abstract name consists of all its bytes; a path ends with a zero.
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1));
  return result;
}

std::uint16_t SocketAddress::port() const noexcept {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                                    : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void SocketAddress::set_port(std::uint16_t port) noexcept {
  (family() == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                        : reinterpret_cast<sockaddr_in&>(storage).sin_port) = htons(port);
}

SocketAddress address_of(int family, const void* bytes, std::uint16_t port) noexcept {
  SocketAddress address;
  if (family == AF_INET6) {
    auto& storage = reinterpret_cast<sockaddr_in6&>(address.storage);
    storage.sin6_family = AF_INET6;
    storage.sin6_port = htons(port);
    std::memcpy(&storage.sin6_addr, bytes, sizeof storage.sin6_addr);
    address.size = sizeof storage;
  } else {
    auto& storage = reinterpret_cast<sockaddr_in&>(address.storage);
    storage.sin_family = AF_INET;
    storage.sin_port = htons(port);
    std::memcpy(&storage.sin_addr, bytes, sizeof storage.sin_addr);
    address.size = sizeof storage;
  }
  return address;
}

std::string to_string(const SocketAddress& address) {
  if (address.family() == AF_UNIX) {
    const auto& storage = reinterpret_cast<const sockaddr_un&>(address.storage);
    const std::size_t size = address.size - std::min<std::size_t>(address.size, offsetof(sockaddr_un, sun_path));
    if (size == 0) return "unix:";
    if (storage.sun_path[0] == '\0') return "unix:@" + std::string(storage.sun_path + 1, size - 1);
    return "unix:" + std::string(storage.sun_path, strnlen(storage.sun_path, size));
  }
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(address.get(), address.size, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  const bool v6 = address.family() == AF_INET6;
  return (v6 ? "[" : "") + std::string(host.data()) + (v6 ? "]:" : ":") + port.data();
}

std::string peer_of(int fd) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) return "unknown";
  ucred process{};
  socklen_t size = sizeof process;
  if (address.family() == AF_UNIX && address.size <= offsetof(sockaddr_un, sun_path) &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &size) == 0) {
    return "unix:pid " + std::to_string(process.pid);
  }
  return to_string(address);
}

std::uint16_t local_port(int fd) noexcept {
  SocketAddress address;
  address.size = sizeof address.storage;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) == 0 ? address.port() : 0;
}

std::string local_of(int fd) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) return "unknown";
  return to_string(address);
}

std::shared_ptr<const Identity> unix_peer_of(int fd) {
  ucred process{};
  socklen_t size = sizeof process;
  if (!is_unix(fd) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &size) != 0 ||
      process.uid == Identity::no_user) {
    return nullptr;
  }
  Identity identity;
  identity.kind = Identity::Kind::unix_peer;
  identity.pid = process.pid;
  identity.uid = process.uid;
  identity.gid = process.gid;
  return std::make_shared<const Identity>(std::move(identity));
}

bool is_unix(int fd) noexcept {
  int domain = 0;
  socklen_t size = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

void prepare_stream_socket(int fd) noexcept {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // Not every protocol has messages by which a silent connection finds that its peer's host has vanished.
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &keep_alive_idle_seconds, sizeof keep_alive_idle_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &keep_alive_interval_seconds, sizeof keep_alive_interval_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &keep_alive_probes, sizeof keep_alive_probes);
}

void bound_local_send_buffer(int fd) noexcept {
  const auto same_host = [](const SocketAddress& a, const SocketAddress& b) {
    if (a.family() != b.family()) return false;
    if (a.family() == AF_INET) {
      return reinterpret_cast<const sockaddr_in&>(a.storage).sin_addr.s_addr ==
             reinterpret_cast<const sockaddr_in&>(b.storage).sin_addr.s_addr;
    }
    return a.family() == AF_INET6 &&
           std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a.storage).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(b.storage).sin6_addr, sizeof(in6_addr)) == 0;
  };
  SocketAddress here;
  SocketAddress there;
  here.size = there.size = sizeof here.storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here.storage), &here.size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&there.storage), &there.size) != 0 || !same_host(here, there)) {
    return;
  }
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &local_send_buffer_bytes, sizeof local_send_buffer_bytes);
}

Error socket_error(ErrorCode code, std::string_view what, int system_error) {
  return Error::of_connection(code, std::string(what) + ": " + std::generic_category().message(system_error));
}

}  // namespace hawser::transport
