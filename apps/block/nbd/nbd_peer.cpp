#include "block/nbd/nbd_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace hawser::block::nbd {
namespace {

std::string network_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& given = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &given.sin_addr, text, sizeof(text));
  } else if (address.ss_family == AF_INET6) {
    in6_addr network = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (!IN6_IS_ADDR_V4MAPPED(&network)) std::fill(network.s6_addr + 8, network.s6_addr + 16, 0);
    ::inet_ntop(AF_INET6, &network, text, sizeof(text));
  }
  return text;
}

}  // namespace

NbdPeer NbdPeer::of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {Identity{}, ""};
  if (address.ss_family != AF_UNIX) return {Identity{}, network_of(address)};
  ucred process{};
  size = sizeof(process);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &process, &size) != 0) return {Identity{}, ""};
  Identity identity{.kind = Identity::Kind::unix_peer, .pid = process.pid, .uid = process.uid, .gid = process.gid};
  return {std::move(identity), "process " + std::to_string(process.pid)};
}

}  // namespace hawser::block::nbd
