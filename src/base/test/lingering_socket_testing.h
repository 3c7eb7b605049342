#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "base/descriptor.h"

namespace hawser {

// A TCP socket whose close() takes a minute while this object lives: it has data that the peer does not read, and
// SO_LINGER.
class LingeringSocket {
 public:
  static constexpr int seconds = 60;

  LingeringSocket() {
    const Descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(listening.get(), name, size) != 0 || listen(listening.get(), 1) != 0 ||
        getsockname(listening.get(), name, &size) != 0 || connect(socket.get(), name, size) != 0) {
      return;
    }
    unread_ = Descriptor(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<char> data(std::size_t{1} << 20);
    while (send(socket.get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    const linger wait{1, seconds};
    works = setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait) == 0;
  }

  Descriptor socket;
  bool works = false;

 private:
  Descriptor unread_;
};

}  // namespace hawser
