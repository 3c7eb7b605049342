#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/descriptor.h"

namespace hawser {

// A TCP socket that takes a minute to close, as long as this lives: it has data that nobody reads, and SO_LINGER.
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

// False if the receiving side refuses descriptors.
inline bool pass_descriptors(int to, std::span<const std::byte> bytes, std::span<const int> descriptors) {
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  std::vector<char> control(CMSG_SPACE(descriptors.size_bytes()));
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  return sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

}  // namespace hawser
