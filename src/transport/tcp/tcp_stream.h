#pragma once

#include <cstdint>
#include <string>

#include "exec/poller.h"
#include "hawser/loop.h"
#include "transport/stream.h"
#include "transport/tcp/socket.h"

namespace hawser::transport {

// A connected socket driven by readiness. While its loop spins, a socket with traffic is read directly, which is
// shorter than asking the poller first.
class TcpStream final : public Stream, exec::Watcher, exec::Source {
 public:
  explicit TcpStream(Descriptor socket) noexcept : socket_(std::move(socket)) {}
  ~TcpStream() override;

  void start(Loop& loop, StreamSink& sink) override;
  void set_sink(StreamSink& sink) noexcept override { sink_ = &sink; }
  std::size_t send(std::span<const Piece> pieces) override;
  void pause() noexcept override { paused_ = true; }
  void resume() override;
  void finish() noexcept override;
  std::string_view transport() const noexcept override { return "tcp"; }
  std::string peer() const override { return peer_of(socket_.get()); }
  std::string local() const override { return local_of(socket_.get()); }

 private:
  // Sockets that a loop reads directly; more would make each spin too long.
  static constexpr std::size_t hot_max = 4;
  // Fruitless reads after which a socket is left to the poller.
  static constexpr unsigned idle_polls_max = 4096;
  // Receives in one turn before others have theirs.
  static constexpr unsigned receives_per_turn = 8;

  void on_ready(exec::Readiness readiness) override;
  bool poll() override;
  bool arm() override { return !readable_ || paused_ || ended_; }
  bool receive();
  void set_hot(bool hot);
  void end(Error reason);

  Descriptor socket_;
  Loop* loop_ = nullptr;
  StreamSink* sink_ = nullptr;
  bool readable_ = false;  // The kernel may have more: a receive did not come back short.
  bool paused_ = false;
  bool ended_ = false;
  bool blocked_ = false;  // A send came back short.
  bool hot_ = false;      // Among the loop's sources.
  unsigned idle_polls_ = 0;
};

}  // namespace hawser::transport
