#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "hawser/error.h"

namespace hawser::transport {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const noexcept { return storage.ss_family; }
};

// "host:port", "[v6]:port"; an empty host or "*" is every address.
struct HostPort {
  std::string host;
  std::string port;
};
Result<HostPort> parse_host_port(std::string_view address);

// Resolves without asking a server if `host` is numeric; `may_block` allows to ask. An error says what is wrong with
// the address; `unavailable` if a name needs asking and it may not.
Result<std::vector<SocketAddress>> resolve(const HostPort& where, bool passive, bool may_block);

// "unix:/path" or, in the abstract namespace, "unix:@name"; nothing if `address` is of another kind.
Result<std::optional<SocketAddress>> parse_unix(std::string_view address);

// Of AF_INET or AF_INET6, from the 4 or 16 bytes of the address.
SocketAddress address_of(int family, const void* bytes, std::uint16_t port) noexcept;

// As above; a Unix socket's without a name is "unix:".
std::string to_string(const SocketAddress& address);
// Of a Unix socket's peer that has no name, the process: "unix:pid 123".
std::string peer_of(int fd);
std::string local_of(int fd);
bool is_unix(int fd) noexcept;

// Non-blocking, no Nagle. Failures are ignored: the socket works without.
void prepare_stream_socket(int fd) noexcept;

// What the kernel keeps of a connection within one machine on its way out, in bytes; it doubles this for its own needs.
// There is no path to fill, so more only pushes out of the processor's cache what the peer is about to read. Across
// machines the kernel finds the size by itself.
inline constexpr int local_send_buffer_bytes = 256 * 1024;
// Applies that to a connected socket whose ends have the same address.
void bound_local_send_buffer(int fd) noexcept;

// An Error whose text is `what` and the system's message for `system_error`.
Error socket_error(ErrorCode code, std::string_view what, int system_error);

}  // namespace hawser::transport
