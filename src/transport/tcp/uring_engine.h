#pragma once

#include <deque>
#include <optional>

#include "exec/io_uring.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "transport/tcp/tcp_engine.h"

namespace hawser::transport {

// Moves bytes by a ring. The kernel receives into the ring's buffers as bytes arrive, from where they are copied to the
// sink; a payload that is placed and large is received by hand, straight into its place.
//
// Sends are made at once, not by the ring: what a send borrows may be withdrawn at any time
// (Connection::copy_and_release()), and the kernel would have to let go of it first.
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
  // Room from here on is a payload's: more than a FramedConnection's block ever has for small messages, of which a copy
  // costs less than changing over.
  static constexpr std::size_t direct_bytes_min = 256 * 1024 + 1;
  // Receives by hand that found no large payload any more, after which the ring receives again.
  static constexpr unsigned small_rounds_max = 16;
  // Receives by hand in one turn before others have theirs.
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

  Loop& loop_;
  exec::IoUring& ring_;
  const int fd_;
  StreamSink* sink_;
  Operation receiving_{*this, &UringEngine::on_received};
  Operation readable_{*this, &UringEngine::on_readable};
  Operation writable_{*this, &UringEngine::on_writable};
  Operation error_{*this, &UringEngine::on_error};  // Seen by this alone while paused.
  // What arrived while paused, in order; at most what the ring's buffers held then. Copies, since those buffers serve
  // other connections too.
  std::deque<Buffer> held_;
  std::optional<Error> held_end_;  // Comes after that.
  bool broken_ = false;            // An error is pending.
  bool notified_broken_ = false;
  bool paused_ = false;
  bool ended_ = false;
  bool by_hand_ = false;      // Receiving without the ring.
  bool later_ = false;        // Among the loop's sources, to go on at its next turn.
  int send_error_ = 0;        // Why sending fails for good.
  bool send_broken_ = false;  // And receiving tells so as well, unless paused.
  unsigned small_rounds_ = 0;
};

}  // namespace hawser::transport
