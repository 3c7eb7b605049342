#pragma once

#include <array>
#include <coroutine>
#include <memory>
#include <vector>

#include "hawser/loop.h"
#include "hawser/transport/stream.h"
#include "wire/hello.h"

namespace hawser::rpc {

// Exchanges hellos on a fresh stream: one each way, and more while a transport beside the stream is agreed on.
// Sans-coroutine: whoever waits is told by Done, on the loop, and may destroy the handshake from there. Reads no byte
// beyond the peer's hello.
class Handshake final : transport::StreamSink, Timer {
 public:
  class Done {
   public:
    // The peer's hello, or why there is none (also when the time is up). Not called from within a constructor.
    virtual void on_hello(Handshake& handshake, Result<wire::Hello> hello) = 0;
    // What the stream did not take at once has left.
    virtual void on_sent(Handshake&) {}

   protected:
    ~Done() = default;
  };

  // Starts `stream` on `loop` and waits for the peer's hello until `deadline`.
  Handshake(Loop& loop, std::unique_ptr<transport::Stream> stream, Time deadline, Done& done);
  ~Handshake();

  // Sends a hello of ours. Hellos are shorter than any socket's buffer; should the stream not take all at once, the
  // rest follows.
  void send(const wire::Hello& hello);
  // After on_hello(): waits for one more, until the same deadline.
  void expect_next();
  transport::Stream& stream() noexcept { return *stream_; }
  // After on_hello(): whoever goes on owns the stream.
  std::unique_ptr<transport::Stream> release_stream() noexcept { return std::move(stream_); }
  // The peer's hello is complete, or there will be none: on_hello() follows or has been called.
  bool heard() const noexcept { return finished_; }
  // All our hellos have been taken whole by the stream.
  bool sent() const noexcept { return sent_ == outgoing_.size(); }

 private:
  MutableBytes receive_space() override;
  void received(std::size_t bytes) override;
  void sendable(std::size_t bytes) override;
  void ended(const Error& reason) override;
  static void expired(Timer& timer) noexcept;
  void finish(Result<wire::Hello> hello) noexcept;
  template <class Step>
  void finish_if_it_throws(Step step) noexcept;
  void take_hello();
  void send_rest();

  Loop& loop_;
  const Time deadline_;
  Done& done_;
  std::unique_ptr<transport::Stream> stream_;
  std::vector<std::byte> outgoing_;
  std::size_t sent_ = 0;
  std::array<std::byte, wire::hello_prefix_bytes + wire::hello_body_bytes_max> incoming_;
  std::size_t got_ = 0;
  std::size_t wanted_ = wire::hello_prefix_bytes;
  bool finished_ = false;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();  // Ends with the handshake; seen by what it posted.
  // What finish() posts, for one hello. Made before: finish() is called where nobody could handle an exception.
  struct Outcome;
  std::unique_ptr<Outcome> outcome_;
};

}  // namespace hawser::rpc
