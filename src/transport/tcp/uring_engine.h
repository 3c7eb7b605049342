#pragma once

#include <deque>
#include <optional>

#include "exec/io_uring.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "transport/tcp/tcp_engine.h"

namespace hawser::transport {

// Receives bytes through a ring. The kernel receives into the ring's buffers as bytes arrive, and they are copied from
// there to the sink. A large payload with a selected receive buffer is received directly into that buffer, with a
// system call.
//
// Sends are done at once, not by the ring. A loan may be withdrawn at any time (Connection::copy_and_release()), and
// the ring's operation would have to be cancelled first.
class UringEngine final : public TcpEngine, exec::Source {
 public:
  UringEngine(Loop& loop, exec::IoUring& ring, int fd, StreamSink& sink);
  ~UringEngine() override;

  void set_sink(StreamSink& sink) noexcept override {
    sink_ = &sink;
    notified_broken_ = false;
  }
  std::size_t send(std::span<const ConstBuffer> pieces) override;
  void pause() noexcept override;
  void resume() override;

 private:
  // Space of this size or more belongs to a payload. It is more than a FramedConnection's block ever has for small
  // messages, and copying those costs less than switching to direct receives.
  static constexpr std::size_t direct_bytes_min = 256 * 1024 + 1;
  // Number of direct receives without a large payload after which the ring receives again.
  static constexpr unsigned small_rounds_max = 16;
  // Limit of direct receives in one turn, so that others get theirs.
  static constexpr unsigned receives_per_turn = 8;

  struct Operation final : exec::IoUring::Handler {
    using Handler = void (UringEngine::*)(const exec::IoUring::Completion&);
    Operation(UringEngine& owner, Handler member) noexcept : engine(owner), handler(member) {}
    void on_completion(const exec::IoUring::Completion& completion) override {
      if (!completion.more) token = exec::IoUring::none;
      (engine.*handler)(completion);
    }
    bool running() const noexcept { return token != exec::IoUring::none; }
    UringEngine& engine;
    const Handler handler;
    exec::IoUring::Token token = exec::IoUring::none;
  };

  void on_received(const exec::IoUring::Completion& completion);
  void on_readable(const exec::IoUring::Completion& completion);
  void on_writable(const exec::IoUring::Completion& completion);
  void on_error(const exec::IoUring::Completion& completion);
  bool poll() override;
  bool arm() override { return false; }

  void receive(Bytes data);
  std::size_t feed(Bytes data);
  void feed_held();
  void receive_by_hand();
  void receive_more();
  void poll_later(bool later);
  void notify_if_broken();
  void end(const Error& reason);
  bool half_closed();

  Loop& loop_;
  exec::IoUring& ring_;
  const int fd_;
  StreamSink* sink_;
  Operation receiving_{*this, &UringEngine::on_received};
  Operation readable_{*this, &UringEngine::on_readable};
  Operation writable_{*this, &UringEngine::on_writable};
  Operation error_{*this, &UringEngine::on_error};  // While paused, only this operation sees an error.
  // Data that arrived while paused, in order; at most as much as the ring's buffers held at that time. The data is
  // copied, because those buffers serve other connections too.
  std::deque<Buffer> held_;
  std::optional<Error> held_end_;  // The end, which is delivered after held_.
  bool broken_ = false;            // An error is pending.
  bool notified_broken_ = false;
  bool paused_ = false;
  bool ended_ = false;
  bool half_closed_ = false;  // The peer has ended its direction, and the sink still sends.
  bool by_hand_ = false;      // Receives directly, without the ring.
  bool later_ = false;        // It is one of the loop's sources, to continue in the loop's next turn.
  int send_error_ = 0;        // Error after which sending is not possible any more.
  bool send_broken_ = false;  // Receiving reports that error as well, unless paused.
  unsigned small_rounds_ = 0;
};

}  // namespace hawser::transport
