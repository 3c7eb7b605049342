#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <memory>

#include "base/descriptor.h"
#include "hawser/error.h"
#include "transport/shm/memory/doorbell.h"

// The two processes of a connection prove their identity to each other over an abstract Unix socket of the server. The
// kernel shows each side the process and the user at the other end (SO_PEERCRED), and passes the shared memory.
namespace hawser::transport::shm {

class Helpers;

// Random and not predictable.
using Token = std::array<std::byte, 16>;
Result<Token> random_token();

// Returns an Error with `what` and the system's message for `system_error`.
Error system_error(ErrorCode code, std::string_view what, int system_error);

// The process at the other end of a socket, as the kernel reports it.
struct PeerIdentity {
  pid_t pid = 0;  // In this process's PID namespace; 0 if the process is not visible there.
  uid_t uid = 0;
  gid_t gid = 0;
};
// An error if the identity is unknown, or if the process runs as another user than this one.
Result<PeerIdentity> identify(const Doorbell& bell);

// Data that a client has sent to the meeting socket.
struct MetPeer {
  Doorbell bell;
  PeerIdentity peer;
  Descriptor memory;  // Not checked.
};

// The server's socket for one client. Nothing remains of it when it is closed.
class MeetingSocket {
 public:
  static constexpr int backlog = 64;

  static Result<MeetingSocket> listen();
  const Token& name() const noexcept { return name_; }
  // Returns the client that has sent `secret`, among those that have connected so far. Never waits.
  Result<MetPeer> accept(const Token& secret, Helpers& helpers) const;
  // Called before destruction. A process that has connected in the meantime may have sent descriptors that block when
  // they are closed.
  void close(Helpers& helpers) noexcept;

 private:
  MeetingSocket(Descriptor socket, const Token& name) noexcept : socket_(std::move(socket)), name_(name) {}

  Descriptor socket_;
  Token name_;
};

// Connects to a server's socket, and sends the secret and the descriptor of the memory. Never waits.
Result<Doorbell> meet(const Token& name, const Token& secret, int memory);

}  // namespace hawser::transport::shm
