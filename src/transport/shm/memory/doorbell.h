#pragma once

#include <utility>

#include "base/descriptor.h"

namespace hawser::transport::shm {

// One end of a connected Unix stream socket whose other end is the peer's doorbell: a byte wakes the other side's
// poller. A send and a receive never block, whatever the peer does to its end (an event descriptor is one open file for
// both processes: the peer could make it blocking).
class Doorbell {
 public:
  explicit Doorbell(Descriptor socket) noexcept;

  int fd() const noexcept { return socket_.get(); }
  // Wakes the peer. Does nothing if the peer has closed its end or has let it fill.
  void ring() const noexcept;
  // Takes the rings so far. False once the peer has closed its end: then it has closed the connection or has died.
  // False too if the peer has sent descriptors, which stay in the socket: receiving them closes them, which may block.
  bool silence() const noexcept;
  // To be closed by Helpers::dispose_socket().
  Descriptor take() noexcept { return std::move(socket_); }

 private:
  Descriptor socket_;
  bool only_bytes_ = false;  // The kernel refuses descriptors.
};

}  // namespace hawser::transport::shm
