#pragma once

#include "hawser/transport/stream.h"

namespace hawser::transport {

// Implemented by a Stream on a TCP socket of the kernel, beside that interface. For options of the socket that change
// what happens to sent bytes, such as encryption by the kernel. Loop's thread only.
class SocketSource {
 public:
  // The descriptor, which is valid as long as the stream; -1 if it is not a TCP socket.
  virtual int tcp_socket() const noexcept = 0;

 protected:
  ~SocketSource() = default;
};

// The TCP socket of a Stream; -1 if it has none.
inline int tcp_socket_of(const Stream* stream) noexcept {
  const auto* const source = dynamic_cast<const SocketSource*>(stream);
  return source != nullptr ? source->tcp_socket() : -1;
}

}  // namespace hawser::transport
