#pragma once

#include <utility>

#include "base/descriptor.h"

namespace hawser::transport::shm {

// One end of a connected Unix stream socket, whose other end is the peer's doorbell. A byte wakes the other side's
// poller. A send and a receive never block, whatever the peer does to its end. (An event descriptor is one open file
// for both processes: the peer could make it blocking.)
class Doorbell {
 public:
  explicit Doorbell(Descriptor socket) noexcept;

  int fd() const noexcept { return socket_.get(); }
  // Wakes the peer. Does nothing if the peer has closed its end or has let its buffer fill.
  void ring() const noexcept;
  // Receives all rings so far. False once the peer has closed its end: it has closed the connection or has died. False
  // also if the peer has sent descriptors. They stay in the socket, because receiving them closes them, which may
  // block.
  bool silence() const noexcept;
  // The caller closes it with Helpers::dispose_socket().
  Descriptor take() noexcept { return std::move(socket_); }

 private:
  Descriptor socket_;
  bool only_bytes_ = false;  // The kernel refuses descriptors.
};

}  // namespace hawser::transport::shm
