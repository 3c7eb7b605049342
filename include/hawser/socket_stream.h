#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/identity.h"
#include "hawser/task.h"

namespace hawser {

class Loop;
namespace transport {
class ServerSecurity;
}

// An event for which SocketStream::wait() waits. Each of them is there, too, when the connection is broken.
enum class SocketEvent : std::uint8_t {
  writable,  // send_now(), which has returned 0, may accept bytes.
  peer_end,  // The peer has ended its direction, or both. Bytes that it sent before may not have been received yet.
  broken,    // Bytes that were sent may not have arrived, and no others will.
};

// The bytes of a connected stream socket, TCP or Unix, that the application has accepted or connected itself, for
// coroutines on a loop: a protocol of another system that runs on the loop of Hawser's clients and servers. (A protocol
// on the port of a Server: hawser/custom_protocol.h.) What the peer does is noticed also while nothing receives.
//
// Thread: all functions are called on the loop's thread.
// Lifetime: the loop may end first, which closes the socket; the connection is broken() then, and its tasks do not
// continue. The destructor closes the socket at once; tasks that wait then end with `cancelled`. Memory that a task was
// given stays valid until the task has ended.
class SocketStream {
 public:
  // Owns `descriptor` from now on, also after an error, and closes it. Options of the socket, such as TCP_NODELAY, are
  // the application's. Errors: invalid_argument if it is not a connected stream socket, overloaded if the system
  // accepts no further descriptor or has no memory.
  static Result<SocketStream> adopt(Loop& loop, int descriptor);
  SocketStream(SocketStream&&) noexcept;
  SocketStream& operator=(SocketStream&&) = delete;
  ~SocketStream();

  // Receives at least one byte and at most into.size(), which is not 0. Returns 0 if the peer has ended its direction,
  // or after stop_receiving(). Error: unavailable if the connection is broken and all its bytes have been received.
  // One task at a time. Nothing is received between two calls (within TLS: at most 64 KiB), so that the peer waits when
  // the socket is full.
  Task<Result<std::size_t>> receive(MutableBytes into);
  // Ends the receive() that waits and all later ones with 0.
  void stop_receiving() noexcept;

  // Returns when the system has accepted all bytes. Error: unavailable if the connection is broken. One task at a time,
  // and no send_now() meanwhile.
  Task<Result<void>> send(Bytes bytes);
  // Sends what the system accepts at once, in order, and returns the number of bytes. Bytes that were not accepted come
  // first in the next call, and stay valid until then. After 0, another call is of no use before SocketEvent::writable.
  std::size_t send_now(std::span<const ConstBuffer> pieces);
  // Returns when the event is there.
  Task<void> wait(SocketEvent event);

  // Sends the end of this direction behind the accepted bytes, and returns when the system has all of them. Receiving
  // continues. Nothing is sent afterwards. Error: unavailable if the connection is broken before.
  Task<Result<void>> finish();
  // Ends both directions at once. Bytes that were not sent are lost. The connection is broken() then.
  void abort() noexcept;
  bool broken() const noexcept;
  // See SocketEvent::peer_end.
  bool peer_ended() const noexcept;

  // "host:port", or "unix:pid 123" for the process at a Unix socket.
  std::string peer() const;
  // Who the peer has proved to be: by its certificate, after something was received within TLS, or as the process at a
  // Unix socket. Null: nothing is proved, or the loop has ended.
  std::shared_ptr<const Identity> identity() const;

  // The server's side of TLS that begins in the midst of a connection (STARTTLS); a TlsServer (hawser/tls.h) converts
  // to the ServerSecurity, which has been given to transport::prepare() (hawser/transport/protect.h).
  // Empty if a connection without TLS is served; otherwise the reason, which names the remedy, or the error after the
  // loop has ended.
  std::string refusal_of_plain(const transport::ServerSecurity& security) const;
  // The bytes from now on are those within TLS; `first` has been received of it. All that was sent has been accepted,
  // and no task waits. The handshake begins at once, and needs no receive(); a send waits for it. A failure breaks the
  // connection: the next receive() returns the error. The kernel does not encrypt for this socket, so that
  // TlsKernel::required refuses each handshake.
  void secure(transport::ServerSecurity& security, Bytes first);

 private:
  struct State;
  struct Receive;
  explicit SocketStream(std::shared_ptr<State> state) noexcept;

  std::shared_ptr<State> state_;  // Null when moved from. Each task that waits keeps it.
};

}  // namespace hawser
