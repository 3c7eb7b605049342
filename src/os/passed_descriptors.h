#pragma once

#include <sys/socket.h>

#include <span>

#include "hawser/bytes.h"

namespace hawser {

// Makes the kernel refuse descriptors that are sent to this Unix socket, or to the sockets that it accepts. Without
// this, an unwanted descriptor is closed by the thread that receives the bytes beside it, and closing may block (a TCP
// socket with SO_LINGER, a file of a file system that does not answer). Returns false before Linux 6.16.
inline bool refuse_descriptors(int socket) noexcept {
  constexpr int pass_rights = 83;  // SO_PASSRIGHTS.
  const int off = 0;
  return setsockopt(socket, SOL_SOCKET, pass_rights, &off, sizeof off) == 0;
}

// Sends `bytes` on the Unix socket `to`, with copies of the descriptors, without blocking. Returns false, with errno,
// if not all bytes were sent or if the receiver refuses descriptors.
bool pass_descriptors(int to, Bytes bytes, std::span<const int> descriptors);

}  // namespace hawser
