#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <memory>

#include "base/descriptor.h"
#include "hawser/error.h"
#include "transport/shm/memory/doorbell.h"

// Where the two processes of a connection prove to each other who they are: an abstract Unix socket of the server's.
// The kernel tells each side the process and the user at the other end (SO_PEERCRED), and passes the shared memory.
namespace hawser::transport::shm {

class Helpers;

// Random, not to be guessed.
using Token = std::array<std::byte, 16>;
Result<Token> random_token();

// An Error of `what` and the system's message for `system_error`.
Error system_error(ErrorCode code, std::string_view what, int system_error);

// The process at the other end of a socket, as the kernel says.
struct PeerIdentity {
  pid_t pid = 0;  // In our namespace of process numbers; 0 if the process is not visible there.
  uid_t uid = 0;
};
// An error if it can't be told, or if that process runs as another user than this one.
Result<PeerIdentity> identify(const Doorbell& bell);

// What a client brings to the meeting.
struct MetPeer {
  Doorbell bell;
  PeerIdentity peer;
  Descriptor memory;  // Unchecked.
};

// The server's socket, for one client. Nothing is left of it when it is closed.
class MeetingSocket {
 public:
  static constexpr int backlog = 64;

  static Result<MeetingSocket> listen();
  const Token& name() const noexcept { return name_; }
  // The client that has sent `secret`, among those that have connected so far. Never waits.
  Result<MetPeer> accept(const Token& secret, Helpers& helpers) const;
  // Before its end: whoever has connected since may have sent what blocks when it is closed.
  void close(Helpers& helpers) noexcept;

 private:
  MeetingSocket(Descriptor socket, const Token& name) noexcept : socket_(std::move(socket)), name_(name) {}

  Descriptor socket_;
  Token name_;
};

// Connects to a server's socket and sends the secret and the descriptor of the memory there. Never waits.
Result<Doorbell> meet(const Token& name, const Token& secret, int memory);

}  // namespace hawser::transport::shm
