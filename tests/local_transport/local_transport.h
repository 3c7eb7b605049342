#pragma once

#include <cstddef>

#include "hawser/transports.h"

// A transport outside the library: messages over a Unix socket beside the byte stream, for two processes of one host.
// It shows the code that the author of a transport writes, and that no file of the library names the transport.
namespace local_transport {

struct LocalOptions {
  // Size of the socket's send buffer in bytes. 0: the system's default.
  std::size_t send_buffer_bytes = 0;
  friend bool operator==(const LocalOptions&, const LocalOptions&) = default;
};

// Transport "local": `client.enable(local_transport::local())`, and the same at the server.
hawser::TransportSpec local(LocalOptions options = {});

}  // namespace local_transport
