#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser {
class Loop;
struct Identity;
}  // namespace hawser

namespace hawser::transport {

// Receives the bytes of a stream. Called on the stream's loop. Must not destroy the stream from within a call.
class StreamSink {
 public:
  // Gives memory for the next bytes, which is not empty. Called before every receive.
  virtual MutableBytes receive_space() = 0;
  // `bytes` bytes lie at the front of the last receive_space(). 0: no more bytes are available now, and the next
  // receive calls receive_space() again.
  virtual void received(std::size_t bytes) = 0;
  // The receive after the last receive_space() wrote nothing there. See Stream::reports_every_receive().
  virtual void received_nothing() noexcept {}
  // After a send() that did not accept all: `bytes` more of the same pieces were accepted, possibly 0. The rest may be
  // sent now.
  virtual void sendable(std::size_t bytes) = 0;
  // While the stream is paused: the connection broke, so that sent bytes do not arrive any more. Bytes received before
  // this, and ended(), follow after resume(), unless the stream is destroyed.
  virtual void broken(const Error&) {}
  // The peer has ended its direction, and all its bytes have been received. True: the sink still sends, nothing more is
  // received, and ended() follows when the connection breaks. A peer that has closed the connection looks like one
  // that still receives, until bytes have been sent to it. False: ended() follows at once. A stream that carries no
  // bytes after the peer's end does not ask.
  virtual bool continues_after_end() { return false; }
  // The last call: the peer ended the stream, it broke, or a send failed.
  virtual void ended(const Error& reason) = 0;

 protected:
  ~StreamSink() = default;
};

// A connected byte stream: TCP, a Unix socket, or simulated. Before start() it belongs to no loop and may move between
// threads. Destroying it closes it at once, without a further call to the sink.
class Stream {
 public:
  virtual ~Stream() = default;

  // Calls `sink` on `loop` from now on. The stream belongs to the loop until it is destroyed.
  virtual void start(Loop& loop, StreamSink& sink) = 0;
  // Replaces the sink, such as by a connection after the handshake.
  virtual void set_sink(StreamSink& sink) noexcept = 0;

  // Accepts as many bytes of the pieces as possible, in order, and returns their number. If these are not all, the rest
  // must stay valid until StreamSink::sendable(), and the caller sends nothing else before that.
  virtual std::size_t send(std::span<const ConstBuffer> pieces) = 0;

  // While the stream is paused, nothing is received, so that the transport's own flow control stops the peer.
  virtual void pause() noexcept = 0;
  virtual void resume() = 0;

  // True if each receive_space() is followed by received() or received_nothing(), with no other call to the sink in
  // between, and if the memory is written between the two calls only.
  virtual bool reports_every_receive() const noexcept { return false; }

  // Sends the end of the stream after all accepted bytes. Receiving continues.
  virtual void finish() noexcept = 0;

  // The name of the transport, a literal: "tcp", "sim".
  virtual std::string_view transport() const noexcept = 0;
  // Addresses as "host:port".
  virtual std::string peer() const = 0;
  virtual std::string local() const = 0;
  // False while a layer of the stream, such as TLS, exchanges its own handshake with the peer.
  virtual bool established() const noexcept { return true; }
  // Who the peer has proved to be (hawser/identity.h). Null: nothing is proved. Asked when the first bytes of the peer
  // have been received, and constant from then on.
  virtual std::shared_ptr<const Identity> identity() const { return nullptr; }
};

}  // namespace hawser::transport
