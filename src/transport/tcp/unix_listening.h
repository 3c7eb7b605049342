#pragma once

#include <sys/types.h>

#include <string>

#include "transport/tcp/socket.h"

namespace hawser::transport {

// The file of a listening Unix socket, which is removed with this, unless another one has taken its place. A copy in a
// child process removes nothing. Empty for sockets without a file.
class SocketFile {
 public:
  SocketFile() noexcept = default;
  // Of `path`, which a socket has just been bound to.
  explicit SocketFile(std::string path) noexcept;
  SocketFile(SocketFile&& other) noexcept;
  SocketFile& operator=(SocketFile&& other) noexcept;
  ~SocketFile();

  // The socket's file is still at its path, and this process bound it.
  bool in_place() const noexcept;

 private:
  bool find(dev_t& device, ino_t& number) const noexcept;

  std::string path_;
  dev_t device_ = 0;
  ino_t number_ = 0;
  pid_t owner_ = 0;
};

struct UnixListening {
  Descriptor socket;
  SocketFile file;
};
// Listens on `address`. A file that a server left behind there is replaced; one that somebody listens on, or that is no
// socket, is an error.
Result<UnixListening> listen_unix(const SocketAddress& address, int backlog);

}  // namespace hawser::transport
