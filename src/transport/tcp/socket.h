#pragma once

#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "hawser/error.h"
#include "hawser/identity.h"

namespace hawser::transport {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const noexcept { return storage.ss_family; }
  // Only for AF_INET and AF_INET6.
  std::uint16_t port() const noexcept;
  void set_port(std::uint16_t port) noexcept;
};

// Parsed from "host:port" or "[v6]:port". An empty host or "*" means every address.
struct HostPort {
  std::string host;
  std::string port;
};
Result<HostPort> parse_host_port(std::string_view address);

// Resolves without asking a server if `host` is numeric. `may_block` allows asking. The error says what is wrong with
// the address. It is `unavailable` if a name requires asking and `may_block` is false.
Result<std::vector<SocketAddress>> resolve(const HostPort& where, bool passive, bool may_block);

// Parses "unix:/path" or, in the abstract namespace, "unix:@name". Nothing if `address` is of another kind.
Result<std::optional<SocketAddress>> parse_unix(std::string_view address);

// Makes an address of AF_INET or AF_INET6 from its 4 or 16 bytes.
SocketAddress address_of(int family, const void* bytes, std::uint16_t port) noexcept;

// Returns the forms above. The address of a Unix socket without a name is "unix:".
std::string to_string(const SocketAddress& address);
// Returns the peer's address. For a Unix socket's peer without a name, this is its process: "unix:pid 123".
std::string peer_of(int fd);
// Returns the process at the other end of a Unix socket, as the kernel noted it. Null for other sockets.
std::shared_ptr<const Identity> unix_peer_of(int fd);
std::string local_of(int fd);
// Returns the port of a bound socket of AF_INET or AF_INET6.
std::uint16_t local_port(int fd) noexcept;
bool is_unix(int fd) noexcept;

// A connection whose peer's host has vanished breaks after this time: 120 s of silence.
inline constexpr int keep_alive_idle_seconds = 60;
inline constexpr int keep_alive_interval_seconds = 15;
inline constexpr int keep_alive_probes = 4;
// Disables Nagle's algorithm and enables TCP keep-alive. Failures are ignored, because the socket works without these
// settings.
void prepare_stream_socket(int fd) noexcept;

// Send buffer for connections within one machine, in bytes; the kernel doubles it for its own needs. Such a connection
// has no path to fill, so a larger buffer only evicts data from the processor's cache that the peer is about to read.
// Across machines the kernel adjusts the size itself.
inline constexpr int local_send_buffer_bytes = 256 * 1024;
// Applies this size to a connected socket whose two ends have the same address.
void bound_local_send_buffer(int fd) noexcept;

// Returns an Error with the text `what` and the system's message for `system_error`.
Error socket_error(ErrorCode code, std::string_view what, int system_error);

}  // namespace hawser::transport
