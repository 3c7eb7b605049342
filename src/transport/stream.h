#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser {
class Loop;
}

namespace hawser::transport {

// Takes what a stream receives. Called on the stream's loop; must not destroy the stream from within a call.
class StreamSink {
 public:
  // Where the next bytes go: not empty. Asked anew before every receive.
  virtual MutableBytes receive_space() = 0;
  // `bytes` bytes lie at the front of the space last asked for. None: nothing comes for the time being, and the next
  // receive asks for space anew.
  virtual void received(std::size_t bytes) = 0;
  // After a send() that did not take all: `bytes` more of the same pieces were taken (possibly none); the rest may
  // be sent now.
  virtual void sendable(std::size_t bytes) = 0;
  // While paused: the connection broke, so that nothing sent arrives any more. What was received before, and ended(),
  // come after resume(), for those who do not end the stream here.
  virtual void broken(const Error&) {}
  // The last call: the peer ended the stream, it broke, or a send failed.
  virtual void ended(const Error& reason) = 0;

 protected:
  ~StreamSink() = default;
};

// A connected stream of bytes: TCP, a Unix socket, or simulated. Before start() it belongs to no loop and may move
// between threads. Destroying it closes it at once, without a further call to the sink.
class Stream {
 public:
  virtual ~Stream() = default;

  // From now on `sink` is called on `loop`, which the stream belongs to until it is destroyed.
  virtual void start(Loop& loop, StreamSink& sink) = 0;
  // Whoever takes over from the first sink, such as a connection after the handshake.
  virtual void set_sink(StreamSink& sink) noexcept = 0;

  // Takes as many bytes as possible of the pieces, in order, and gives their number. If that is less than all, the
  // rest must stay valid until StreamSink::sendable(), and nothing else be sent before.
  virtual std::size_t send(std::span<const ConstBuffer> pieces) = 0;

  // While paused nothing is received, so that the peer is slowed down by the transport's own flow control.
  virtual void pause() noexcept = 0;
  virtual void resume() = 0;

  // Sends the end of the stream after all that was taken; receiving goes on.
  virtual void finish() noexcept = 0;

  // What the stream runs over, a literal: "tcp", "sim".
  virtual std::string_view transport() const noexcept = 0;
  // Addresses as "host:port".
  virtual std::string peer() const = 0;
  virtual std::string local() const = 0;
};

}  // namespace hawser::transport
