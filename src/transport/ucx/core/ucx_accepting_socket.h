#pragma once

#include <sys/socket.h>

namespace hawser::transport {

// The TCP socket on which UCX's listener accepts. UCX (1.13 to 1.18) keeps a pointer to its listener for each
// connection whose request has not arrived completely, and uses the pointer when the request arrives, also after the
// listener has been destroyed. UCX has no function that ends these connections, so this class ends their sockets.
class UcxAcceptingSocket {
 public:
  // Finds the socket that listens on `address` among the descriptors of this process. Without such a socket (a listener
  // over RDMA alone), the functions below do nothing.
  explicit UcxAcceptingSocket(const sockaddr_storage& address);

  // The kernel drops all packets for the socket from now on: no further connection is made.
  void refuse() noexcept;
  // Shuts down the connections on which UCX has sent nothing, which are those whose request UCX has not answered.
  // Returns true if there was none, and none waits to be accepted.
  bool cut_unanswered() noexcept;

 private:
  sockaddr_storage address_;
  int descriptor_ = -1;
};

}  // namespace hawser::transport
