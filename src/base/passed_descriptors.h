#pragma once

#include <sys/socket.h>

namespace hawser {

// From now on the kernel refuses descriptors that are sent to this Unix socket, or to what it accepts: a descriptor that nobody
// wants is closed by whoever receives the bytes beside it, and closing may block (a TCP socket with SO_LINGER, a file of a file
// system that does not answer). False before Linux 6.16.
inline bool refuse_descriptors(int socket) noexcept {
  constexpr int pass_rights = 83;  // SO_PASSRIGHTS.
  const int off = 0;
  return setsockopt(socket, SOL_SOCKET, pass_rights, &off, sizeof off) == 0;
}

}  // namespace hawser
