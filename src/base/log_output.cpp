#include "base/log_output.h"

#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "base/write_signals.h"

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

// One write to a descriptor that is not a socket. O_NONBLOCK must not be set on it: other processes may have it too.
ssize_t write_once(int descriptor, bool pipe, std::string_view bytes) noexcept {
  if (pipe) {
    const iovec all{const_cast<char*>(bytes.data()), bytes.size()};
    const ssize_t written = ::pwritev2(descriptor, &all, 1, -1, RWF_NOWAIT);
    if (written >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS)) return written;  // Linux 6.5 and later.
  }
  pollfd wait{descriptor, POLLOUT, 0};
  const int ready = ::poll(&wait, 1, 0);
  if (ready == 0) errno = EAGAIN;
  if (ready <= 0) return -1;
  // A pipe that is writable takes PIPE_BUF bytes at once.
  return ::write(descriptor, bytes.data(), pipe ? std::min<std::size_t>(bytes.size(), PIPE_BUF) : bytes.size());
}

}  // namespace

std::size_t write_ready(int descriptor, std::string_view bytes) noexcept {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return 0;
  std::size_t taken = 0;
  const auto write_all = [&](auto write) {
    while (taken < bytes.size()) {
      const ssize_t written = write(bytes.substr(taken));
      if (written > 0) {
        taken += static_cast<std::size_t>(written);
      } else if (written == 0 || errno != EINTR) {
        break;
      }
    }
  };
  if (S_ISSOCK(status.st_mode)) {
    write_all([&](std::string_view rest) {
      return ::send(descriptor, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    });
  } else {
    const WriteSignalsBlocked quiet;
    write_all([&](std::string_view rest) { return write_once(descriptor, S_ISFIFO(status.st_mode), rest); });
  }
  return taken;
}

bool LineOutput::put(std::string_view line) noexcept {
  if (within_line_.exchange(false, std::memory_order_relaxed) && write_ready(descriptor_, "\n") == 0) {
    within_line_.store(true, std::memory_order_relaxed);
    return false;
  }
  const std::size_t taken = write_ready(descriptor_, line);
  if (taken == line.size()) return true;
  if (taken != 0) within_line_.store(true, std::memory_order_relaxed);
  return false;
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
    return fail(unavailable(path, errno));
  }
  Descriptor sender(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!sender.valid()) return fail(unavailable(path, errno));
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
