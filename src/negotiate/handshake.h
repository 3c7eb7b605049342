#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/alive.h"
#include "hawser/loop.h"
#include "hawser/transport/stream.h"
#include "negotiate/first_bytes.h"
#include "wire/hello.h"

namespace hawser::negotiate {

// The name of the library's own protocol in ALPN.
inline constexpr std::string_view native_alpn = "hawser";

// Exchanges hellos on a fresh stream: one in each direction, and more while a transport beside the stream is
// negotiated. Uses no coroutines: the loop notifies Done of each hello, and Done may destroy the handshake there. Reads
// no byte beyond the peer's hello.
class Handshake final : transport::StreamSink {
 public:
  class Done {
   public:
    // Reports the peer's hello, or why there is none (also when the deadline has passed). Not called from within the
    // constructor.
    virtual void on_hello(Handshake& handshake, Result<wire::Hello> hello) = 0;
    // The first bytes are not those of a hello, and FirstBytes has recognised them. `first` is valid during the
    // call. Reported instead of on_hello().
    virtual void on_other(Handshake&, Bytes first) { static_cast<void>(first); }
    // The stream has accepted the rest of a hello that it did not accept at once.
    virtual void on_sent(Handshake&) {}

   protected:
    ~Done() = default;
  };

  // Starts `stream` on `loop` and waits for the peer's hello until `deadline`, or for first bytes that `others`
  // recognises. It outlives this object; null: there are no other protocols.
  Handshake(Loop& loop, std::unique_ptr<transport::Stream> stream, Time deadline, Done& done,
            const FirstBytes* others = nullptr);
  ~Handshake();

  // Lets a peer that has sent nothing be silent until `until`, although the deadline passes: its client may have
  // connected in advance. With its first byte it gets a new deadline, which is `rest` later. Call it at the beginning.
  void allow_silence(Time until, Duration rest) noexcept;
  // Sends a hello. Hellos are shorter than any socket's buffer; if the stream nevertheless does not accept all bytes at
  // once, the rest follows.
  void send(const wire::Hello& hello);
  // Waits for another hello, until the same deadline. Call it after on_hello().
  void expect_next();
  transport::Stream& stream() noexcept { return *stream_; }
  Time deadline() const noexcept { return deadline_; }
  // Passes the stream to the caller. Call it after on_hello().
  std::unique_ptr<transport::Stream> release_stream() noexcept { return std::move(stream_); }
  // Sends `text`, which ends the connection: then sends the end of the stream and reads, without a use for it, what the
  // peer has sent, because unread bytes would make the kernel drop `text`. Reports on_hello() with an error when the
  // peer has closed, has sent farewell_bytes_max, or has had farewell_max. Call it after on_hello() or on_other().
  void leave(std::string text);
  static constexpr Duration farewell_max = std::chrono::seconds(1);
  static constexpr std::size_t farewell_bytes_max = std::size_t{256} << 10;
  bool leaving() const noexcept { return leaving_; }
  // The first bytes of a peer whose hello failed because they were not those of a hello; otherwise empty.
  Bytes unknown() const noexcept { return unknown_ ? Bytes(incoming_).first(got_) : Bytes(); }
  // Returns true if the stream has ended and nothing arrived before.
  bool ended_silently() const noexcept { return stream_ended_ && got_ == 0; }
  // Returns true if the peer's hello is complete or has failed: on_hello() follows or has been called.
  bool heard() const noexcept { return finished_; }
  // Returns true if the stream has accepted all of our hellos.
  bool sent() const noexcept { return sent_ == outgoing_.size(); }

 private:
  MutableBytes receive_space() override;
  void received(std::size_t bytes) override;
  void sendable(std::size_t bytes) override;
  void ended(const Error& reason) override;
  void expire() noexcept;
  void finish(Result<wire::Hello> hello) noexcept;
  template <class Step>
  void finish_if_it_throws(Step step) noexcept;
  void take_first_byte();
  void take_hello();
  void take_other();
  void restart();
  void send_rest();

  Loop& loop_;
  Time deadline_;
  Time silent_until_{};  // Not later than deadline_: the peer must not be silent.
  Duration rest_{};      // From the first byte of a peer that may have been silent.
  Done& done_;
  std::unique_ptr<transport::Stream> stream_;
  std::vector<std::byte> outgoing_;
  std::size_t sent_ = 0;
  std::array<std::byte, wire::hello_prefix_bytes + wire::hello_body_bytes_max> incoming_;
  std::size_t got_ = 0;
  std::size_t wanted_ = wire::hello_prefix_bytes;
  bool finished_ = false;
  const FirstBytes* const others_;
  bool other_ = false;  // The first bytes are those of another protocol.
  bool unknown_ = false;
  bool leaving_ = false;
  bool stream_ended_ = false;
  std::string farewell_;
  MemberTimer<&Handshake::expire> timer_{*this};
  const Alive<Handshake> alive_{*this};
  // The work that finish() posts for one hello. It is allocated in advance: finish() runs where no exception could be
  // handled.
  struct Outcome;
  std::unique_ptr<Outcome> outcome_;
};

}  // namespace hawser::negotiate
