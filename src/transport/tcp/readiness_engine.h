#pragma once

#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "transport/tcp/tcp_engine.h"

namespace hawser::transport {

// Moves bytes when the poller says that the socket is ready. While its loop spins, a socket with traffic is read
// directly, which is shorter than asking the poller first.
class ReadinessEngine final : public TcpEngine, exec::Watcher, exec::Source {
 public:
  ReadinessEngine(Loop& loop, int fd, StreamSink& sink);
  ~ReadinessEngine() override;

  void set_sink(StreamSink& sink) noexcept override {
    sink_ = &sink;
    notified_broken_ = false;
  }
  std::size_t send(std::span<const ConstBuffer> pieces) override;
  void pause() noexcept override { paused_ = true; }
  void resume() override;

 private:
  // Sockets that a loop reads directly: where there are more, asking the poller costs less than reading in vain.
  static constexpr std::size_t hot_max = 32;
  // Fruitless reads after which a socket is left to the poller.
  static constexpr unsigned idle_polls_max = 4096;
  // Receives in one turn before others have theirs.
  static constexpr unsigned receives_per_turn = 8;

  void on_ready(exec::Readiness readiness) override;
  bool poll() override;
  bool arm() override { return !readable_ || paused_ || ended_; }
  bool receive();
  void set_hot(bool hot);
  void notify_if_broken();
  void end(const Error& reason);

  Loop& loop_;
  const int fd_;
  StreamSink* sink_;
  bool readable_ = false;  // The kernel may have more: a receive did not come back short.
  bool closing_ = false;   // The poller told of the peer's end or an error, and will not again: read up to it.
  bool broken_ = false;    // An error is pending.
  bool notified_broken_ = false;
  bool paused_ = false;
  bool ended_ = false;
  bool blocked_ = false;  // A send came back short.
  bool hot_ = false;      // Among the loop's sources.
  int send_error_ = 0;    // Why sending fails for good; told once all is received.
  unsigned idle_polls_ = 0;
};

}  // namespace hawser::transport
