#pragma once

#include <sys/types.h>

#include <string>

#include "transport/tcp/socket.h"

namespace hawser::transport {

// The file of a listening Unix socket. Destroying this removes the file, unless another file has replaced it. A copy in
// a child process removes nothing. Empty for sockets without a file.
class SocketFile {
 public:
  SocketFile() noexcept = default;
  // `path` is the file to which a socket has just been bound.
  explicit SocketFile(std::string path) noexcept;
  SocketFile(SocketFile&& other) noexcept;
  SocketFile& operator=(SocketFile&& other) noexcept;
  ~SocketFile();

  // True if the socket's file is still at its path and this process bound it.
  bool in_place() const noexcept;
  // The file stays: another process listens on the socket.
  void keep() noexcept { path_.clear(); }

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
// Listens on `address`. Replaces a file that a server left behind there. It is an error if a process listens on the
// file, or if the file is not a socket.
Result<UnixListening> listen_unix(const SocketAddress& address, int backlog);

}  // namespace hawser::transport
