#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/transport/stream.h"

namespace hawser::transport {

// Sends and receives the bytes of a connected socket on one kind of loop. The functions are those of Stream. Another
// object owns the socket.
class TcpEngine {
 public:
  virtual ~TcpEngine() = default;
  virtual void set_sink(StreamSink& sink) noexcept = 0;
  virtual std::size_t send(std::span<const ConstBuffer> pieces) = 0;
  virtual void pause() noexcept = 0;
  virtual void resume() = 0;
};

// The result of one attempt to send, which does not wait.
struct Sent {
  std::size_t bytes = 0;
  bool all = false;
  // The errno of the failure; 0 if there was none, or if the socket is full. `broken`: it is an error of the
  // connection, which receiving reports too.
  int error = 0;
  bool broken = false;
};
Sent send_now(int fd, std::span<const ConstBuffer> pieces) noexcept;

// Returns the reason for the end of a stream. `received` is the result of receiving: 0 for the peer's end, or a
// negative errno. `sent` is the errno of a send that failed before; if it is set, it is the more precise reason.
Error end_reason(int received, int sent) noexcept;

}  // namespace hawser::transport
