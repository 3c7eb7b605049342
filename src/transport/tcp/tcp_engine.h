#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/transport/stream.h"

namespace hawser::transport {

// How a connected socket's bytes are moved on one kind of loop: what Stream says, for a socket that somebody else owns.
class TcpEngine {
 public:
  virtual ~TcpEngine() = default;
  virtual void set_sink(StreamSink& sink) noexcept = 0;
  virtual std::size_t send(std::span<const ConstBuffer> pieces) = 0;
  virtual void pause() noexcept = 0;
  virtual void resume() = 0;
};

// Tries once to send, without waiting.
struct Sent {
  std::size_t bytes = 0;
  bool all = false;
  // What failed, 0 if nothing did: the socket is full, or broken so that receiving tells (see `broken`).
  int error = 0;
  bool broken = false;
};
Sent send_now(int fd, std::span<const ConstBuffer> pieces) noexcept;

// Why a stream ended: `received` is what receiving gave, 0 for the peer's end, or a negative errno; `sent` is the errno
// of a send that had failed before, which is the truer reason.
Error end_reason(int received, int sent) noexcept;

}  // namespace hawser::transport
