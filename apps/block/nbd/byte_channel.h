#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "block/nbd/socket_stream.h"
#include "hawser/bytes.h"
#include "hawser/identity.h"
#include "hawser/loop.h"
#include "hawser/sync.h"
#include "hawser/task.h"
#include "hawser/transport/protect.h"
#include "hawser/transport/stream.h"

namespace hawser::block::nbd {

// The bytes of a connection for a coroutine that receives when it wants. TLS may begin in its midst.
class ByteChannel final : transport::StreamSink, SocketStream::Owner {
 public:
  class Owner {
   public:
    // The rest of what send() did not accept can be sent, or the channel is broken.
    virtual void on_writable() = 0;
    // The peer sends nothing after what it has sent.
    virtual void on_peer_end() = 0;

   protected:
    ~Owner() = default;
  };

  // As SocketStream.
  ByteChannel(Loop& loop, SocketDescriptor socket, std::string peer, Owner& owner);
  ByteChannel(const ByteChannel&) = delete;
  ByteChannel& operator=(const ByteChannel&) = delete;
  ~ByteChannel();

  // Receives at least one byte. 0: the peer has ended its direction, the connection broke, or stop_receiving() was
  // called. One task at a time.
  Task<std::size_t> receive(MutableBytes into);
  void stop_receiving() noexcept;

  // Sends as many bytes of the pieces as are accepted. After 0, the owner waits for on_writable(), unless broken(). The
  // bytes that were not accepted come first in the next call, and stay valid until then.
  std::size_t send(std::span<const ConstBuffer> pieces);
  // Returns when the kernel has all bytes that send() accepted, or the channel is broken. Nothing is sent afterwards.
  Task<void> finish();
  // Bytes that were not sent are lost.
  bool broken() const noexcept { return broken_ || socket_.broken(); }
  // The peer has ended its direction, or both. Bytes that it sent before may be there.
  bool peer_ended() const noexcept { return socket_.peer_ended(); }
  // Ends both directions at once.
  void abort() noexcept;

  // The reason why a connection without TLS is refused, or nothing.
  std::string refusal_of_plain(const transport::ServerSecurity& security) const;
  // The bytes from now on are those within TLS; `first` has been received of it. All that was sent has been accepted.
  // The next receive() begins the handshake.
  void secure(transport::ServerSecurity& security, Bytes first);
  // The certificate of the peer, after something was received within TLS. Null: it has none.
  std::shared_ptr<const Identity> identity() const { return stream_->identity(); }

 private:
  // Receives of one task without a turn of the loop.
  static constexpr unsigned receives_per_turn = 4;

  MutableBytes receive_space() override { return waiting_; }
  void received(std::size_t bytes) override;
  void sendable(std::size_t bytes) override;
  void broken(const Error& reason) override;
  bool continues_after_end() override;
  void ended(const Error& reason) override;
  void on_socket_end() override { owner_.on_peer_end(); }
  void on_socket_broken() override;
  void on_socket_finished() noexcept override { changed_.set(); }

  Loop& loop_;
  Owner& owner_;
  std::unique_ptr<transport::Stream> stream_;  // The socket, or TLS above it.
  SocketStream& socket_;
  Event changed_;         // Something was received into `waiting_`, nothing more will be, or the socket has all bytes.
  MutableBytes waiting_;  // Memory of a receive() that waits.
  std::size_t got_ = 0;   // Bytes that were received there.
  std::size_t late_ = 0;  // Bytes that were accepted after the send() that offered them.
  bool ended_ = false;    // Nothing more is received.
  bool broken_ = false;
  bool shaking_hands_ = false;  // Nothing has been received within TLS so far.
  unsigned receives_ = 0;       // Since the last turn of the loop.
};

}  // namespace hawser::block::nbd
