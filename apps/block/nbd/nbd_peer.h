#pragma once

#include <sys/socket.h>

#include <string>
#include <utility>

#include "hawser/identity.h"

namespace hawser::block::nbd {

// The other end of a connection, as the system names it.
class NbdPeer {
 public:
  static NbdPeer of(int descriptor);

  // A process at a Unix socket. Nobody over TCP, because an address proves nothing.
  const Identity& identity() const noexcept { return identity_; }
  // Connections with the same text share the places of a client: those of a process at a Unix socket, of a host, or of
  // the network of 64 bits of an IPv6 address.
  const std::string& client() const noexcept { return client_; }
  // As Stream::peer().
  const std::string& address() const noexcept { return address_; }
  // A Unix socket.
  bool local() const noexcept { return address_.starts_with("unix:"); }

 private:
  static NbdPeer of_host(const sockaddr_storage& from);
  NbdPeer(Identity identity, std::string client, std::string address)
      : identity_(std::move(identity)), client_(std::move(client)), address_(std::move(address)) {}

  const Identity identity_;
  const std::string client_;
  const std::string address_;
};

}  // namespace hawser::block::nbd
