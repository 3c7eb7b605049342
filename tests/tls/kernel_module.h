#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/descriptor.h"

namespace hawser::testing_tools {

// True if the kernel has no module tls, so that tests of its encryption are skipped. It does not ask the library, whose
// faults must not skip the tests that find them.
inline bool kernel_lacks_tls() {
  constexpr int tcp_ulp = 31;  // TCP_ULP, whose header must not be included beside <netinet/tcp.h>.
  const Descriptor unconnected(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return setsockopt(unconnected.get(), IPPROTO_TCP, tcp_ulp, "tls", sizeof "tls") != 0 && errno == ENOENT;
}

}  // namespace hawser::testing_tools
