#include "block/nbd/nbd_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace hawser::block::nbd {
namespace {

constexpr std::size_t prefix_bytes = 8;  // The network of an IPv6 address has so many.

std::string text_of(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(family, address, text, sizeof(text));
  return text;
}

}  // namespace

NbdPeer NbdPeer::of_host(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) {
    const auto& given = reinterpret_cast<const sockaddr_in&>(from);
    const std::string host = text_of(AF_INET, &given.sin_addr);
    return {{}, host, host + ':' + std::to_string(ntohs(given.sin_port))};
  }
  if (from.ss_family != AF_INET6) return {{}, "", ""};
  const auto& given = reinterpret_cast<const sockaddr_in6&>(from);
  in6_addr network = given.sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&network)) std::fill(network.s6_addr + prefix_bytes, std::end(network.s6_addr), 0);
  return {{},
          text_of(AF_INET6, &network),
          '[' + text_of(AF_INET6, &given.sin6_addr) + "]:" + std::to_string(ntohs(given.sin6_port))};
}

NbdPeer NbdPeer::of(int descriptor) {
  sockaddr_storage from{};
  socklen_t size = sizeof(from);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&from), &size) != 0) return {{}, "", ""};
  if (from.ss_family != AF_UNIX) return of_host(from);
  ucred process{};
  size = sizeof(process);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &process, &size) != 0) return {{}, "", "unix:"};
  const std::string pid = std::to_string(process.pid);
  Identity identity{.kind = Identity::Kind::unix_peer, .pid = process.pid, .uid = process.uid, .gid = process.gid};
  return {std::move(identity), "process " + pid, "unix:pid " + pid};
}

}  // namespace hawser::block::nbd
