#include "transport/tcp/inherited_socket.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>
#include <system_error>
#include <vector>

#include "os/passed_descriptors.h"
#include "transport/tcp/socket.h"

namespace hawser::transport {
namespace {

// Returns -1 if the socket does not exist or has no such option.
int int_option(int fd, int name) noexcept {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

bool is_listening_stream(int fd) noexcept {
  const int domain = int_option(fd, SO_DOMAIN);
  return (domain == AF_INET || domain == AF_INET6 || domain == AF_UNIX) && int_option(fd, SO_TYPE) == SOCK_STREAM &&
         int_option(fd, SO_ACCEPTCONN) == 1;
}

std::unexpected<Error> wrong_inherited(std::string_view address, std::string_view what) {
  return fail(Error::of_connection(ErrorCode::invalid_argument, "'" + std::string(address) + "' " + std::string(what)));
}

}  // namespace

Result<std::optional<std::vector<Descriptor>>> inherited_sockets(std::string_view address) {
  constexpr std::string_view scheme = "fd:";
  if (!address.starts_with(scheme)) return std::nullopt;
  std::vector<int> numbers;
  const char* const end = address.data() + address.size();
  const char* at = address.data() + scheme.size() - 1;
  while (at != end) {
    int fd = -1;
    const auto [rest, error] = std::from_chars(at + 1, end, fd);
    if (error != std::errc() || (rest != end && *rest != ',') || fd < first_own_descriptor ||
        std::ranges::find(numbers, fd) != numbers.end()) {
      return wrong_inherited(address, "names no descriptors: write fd: and numbers from 3, such as fd:3 or fd:3,4");
    }
    if (!is_listening_stream(fd)) {
      return wrong_inherited(address, "names descriptor " + std::to_string(fd) +
                                          ", which is not a listening TCP or Unix socket of this process: pass one to "
                                          "it, such as the socket of a systemd .socket unit");
    }
    numbers.push_back(fd);
    at = rest;
  }
  for (const int fd : numbers) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
      return fail(socket_error(ErrorCode::unavailable, "cannot listen on " + std::string(address), errno));
    }
    if (is_unix(fd)) refuse_descriptors(fd);
  }
  std::vector<Descriptor> sockets;
  for (const int fd : numbers) sockets.emplace_back(fd);
  return sockets;
}

}  // namespace hawser::transport
