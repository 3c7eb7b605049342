#pragma once

#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "transport/tcp/tcp_engine.h"

namespace hawser::transport {

// Is notified of what happens to the socket of an application, also while it is paused.
class ReadinessObserver {
 public:
  // The peer has ended its direction. `broken`: or an error is pending, after which sent bytes are lost.
  virtual void on_hangup(bool broken) noexcept = 0;
  // The end of this direction follows the bytes that the kernel has.
  virtual void on_finished() noexcept = 0;

 protected:
  ~ReadinessObserver() = default;
};

// Sends and receives when the poller reports that the socket is ready. While its loop spins, a socket with traffic is
// read directly, which is faster than asking the poller first.
class ReadinessEngine final : public TcpEngine, exec::Watcher, exec::Source {
 public:
  // `observer`: null for a socket of the library.
  ReadinessEngine(Loop& loop, int fd, StreamSink& sink, ReadinessObserver* observer = nullptr);
  ~ReadinessEngine() override;

  void set_sink(StreamSink& sink) noexcept override {
    sink_ = &sink;
    notified_broken_ = false;
  }
  std::size_t send(std::span<const ConstBuffer> pieces) override;
  void pause() noexcept override { paused_ = true; }
  void resume() override;
  // As resume(), and what has arrived already is received within the call.
  void receive_now();

 private:
  // Limit of the sockets that a loop reads directly. With more sockets, asking the poller costs less than reading in
  // vain.
  static constexpr std::size_t hot_max = 32;
  // Number of reads without data after which the poller watches the socket again.
  static constexpr unsigned idle_polls_max = 4096;
  // Limit of receives in one turn, so that others get theirs.
  static constexpr unsigned receives_per_turn = 8;

  void on_ready(exec::Readiness readiness) override;
  bool poll() override;
  bool arm() override { return !readable_ || paused_ || ended_; }
  bool half_closed();
  bool receive();
  void receive_ready();
  void set_hot(bool hot);
  void notify_if_broken();
  void end(int received);

  Loop& loop_;
  const int fd_;
  StreamSink* sink_;
  ReadinessObserver* const observer_;
  bool readable_ = false;  // The kernel may have more data: a receive was not short.
  // The poller reported the peer's end or an error, and will not report it again: the socket is read up to it.
  bool closing_ = false;
  bool broken_ = false;  // An error is pending.
  bool notified_broken_ = false;
  bool paused_ = false;
  bool ended_ = false;
  bool half_closed_ = false;  // The peer has ended its direction, and the sink still sends.
  bool blocked_ = false;      // A send was short.
  bool hot_ = false;          // It is one of the loop's sources.
  // Error after which sending is not possible any more. It is reported when all data has been received.
  int send_error_ = 0;
  unsigned idle_polls_ = 0;
};

}  // namespace hawser::transport
