#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/stream.h"

namespace hawser::block::nbd {

// Owns a file descriptor.
class SocketDescriptor {
 public:
  SocketDescriptor() noexcept = default;
  explicit SocketDescriptor(int number) noexcept : number_(number) {}
  SocketDescriptor(SocketDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  SocketDescriptor& operator=(SocketDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~SocketDescriptor();
  int get() const noexcept { return number_; }
  bool valid() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

// A connected socket. The installed headers of Hawser have the interface of a byte stream, and no byte stream for
// applications. It is paused at first. What the peer and the system do to the socket is notified also while it is
// paused, and if TLS is above it.
class SocketStream final : public transport::Stream, exec::Watcher, exec::Source {
 public:
  class Owner {
   public:
    // The peer sends nothing after what it has sent.
    virtual void on_socket_end() = 0;
    // Bytes that were not sent are lost.
    virtual void on_socket_broken() = 0;
    // finish() was called: the kernel has all bytes.
    virtual void on_socket_finished() noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // `socket` does not block. `peer`: the result of peer(). Throws std::system_error if the system takes no more
  // descriptors.
  SocketStream(Loop& loop, SocketDescriptor socket, std::string peer, Owner& owner);
  ~SocketStream() override;

  // The stream belongs to the loop of the constructor.
  void start(Loop&, transport::StreamSink& sink) override { set_sink(sink); }
  void set_sink(transport::StreamSink& sink) noexcept override { sink_ = &sink; }
  std::size_t send(std::span<const ConstBuffer> pieces) override;
  void pause() noexcept override { paused_ = true; }
  void resume() override;
  void finish() noexcept override;
  std::string_view transport() const noexcept override { return peer_.starts_with("unix:") ? "unix" : "tcp"; }
  std::string peer() const override { return peer_; }
  std::string local() const override { return {}; }

  bool broken() const noexcept { return broken_; }
  // The peer has ended its direction, or both. Bytes that it sent before may be there.
  bool peer_ended() const noexcept { return closing_; }
  bool finished() const noexcept { return finished_; }
  // Ends both directions at once, without a call to the owner.
  void shut_down() noexcept;

 private:
  // Polls without a byte after which the loop does not poll the socket any more.
  static constexpr unsigned idle_polls_max = 4096;
  // Sockets and other sources that the loop polls.
  static constexpr std::size_t hot_max = 8;

  void on_ready(exec::Readiness readiness) override;
  bool poll() override;
  bool receive();
  bool receive_once();
  void end(std::string_view why);
  void set_hot(bool hot) noexcept;

  Loop& loop_;
  const SocketDescriptor socket_;
  const std::string peer_;
  Owner& owner_;
  transport::StreamSink* sink_ = nullptr;  // Set before the first resume().
  bool paused_ = true;
  bool readable_ = true;  // A receive may find bytes.
  bool closing_ = false;  // The peer's end was notified, so that no further edge follows.
  bool ended_ = false;    // Nothing more is received.
  bool broken_ = false;
  bool blocked_ = false;  // The kernel did not take all of a send.
  bool finished_ = false;
  bool hot_ = false;  // The loop polls the socket.
  unsigned idle_polls_ = 0;
};

}  // namespace hawser::block::nbd
