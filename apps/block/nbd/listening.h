#pragma once

#include <memory>
#include <string>
#include <utility>

#include "block/nbd/socket_descriptor.h"
#include "hawser/error.h"

namespace hawser::block::nbd {

// Listens at "HOST:PORT", "unix:/path", "unix:@name", or "fd:3": a socket that was passed to this process. The file of
// a passed socket stays.
class NbdListening {
 public:
  static Result<NbdListening> open(const std::string& address);
  // The address of a passed socket; other addresses as they are.
  static std::string resolve(const std::string& address);
  NbdListening(NbdListening&&) noexcept = default;
  NbdListening& operator=(NbdListening&&) = delete;
  // Removes the file of a Unix socket, unless it is that of another socket by now.
  ~NbdListening() = default;

  int descriptor() const noexcept { return socket_.get(); }
  // With the port that the system has chosen.
  const std::string& address() const noexcept { return address_; }

 private:
  NbdListening(SocketDescriptor socket, std::string address, std::shared_ptr<void> file) noexcept
      : socket_(std::move(socket)), address_(std::move(address)), file_(std::move(file)) {}
  static Result<NbdListening> open_tcp(const std::string& address);
  static Result<NbdListening> open_passed(const std::string& address);

  SocketDescriptor socket_;
  std::string address_;
  std::shared_ptr<void> file_;  // UnixListener::file; null for other sockets.
};

}  // namespace hawser::block::nbd
