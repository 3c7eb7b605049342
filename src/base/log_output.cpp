#include "base/log_output.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace hawser {
namespace {

socklen_t fill_address(sockaddr_un& address, std::string_view path) noexcept {
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
}

Error unavailable(const std::string& path, int number) {
  return Error{.code = ErrorCode::unavailable,
               .scope = ErrorScope::connection,
               .text = "no journal at " + path + ": " + std::strerror(number) + ": is systemd-journald running?"};
}

}  // namespace

void write_all(int descriptor, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      return;
    }
  }
}

Result<DatagramSender> DatagramSender::to(std::string path) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return fail(ErrorCode::invalid_argument, "path of the journal's socket has " + std::to_string(path.size()) +
                                                 " bytes: give 1 to " + std::to_string(sizeof address.sun_path - 1));
  }
  const socklen_t size = fill_address(address, path);
  // A connected socket finds out whether somebody listens. It would be useless after the journal has been restarted.
  const Descriptor probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid() || ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return std::unexpected(unavailable(path, errno));
  }
  Descriptor sender(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!sender.valid()) return std::unexpected(unavailable(path, errno));
  return DatagramSender(std::move(sender), std::move(path));
}

bool DatagramSender::send(std::string_view datagram) const noexcept {
  sockaddr_un address{};
  const socklen_t size = fill_address(address, path_);
  while (true) {
    const ssize_t sent = ::sendto(socket_.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL,
                                  reinterpret_cast<const sockaddr*>(&address), size);
    if (sent >= 0) return true;
    if (errno != EINTR) return false;
  }
}

}  // namespace hawser
