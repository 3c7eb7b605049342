#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hawser/loop.h"
#include "hawser/timer.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/stream.h"
#include "security/tls/handshake.h"
#include "security/tls/held_memory.h"
#include "security/tls/kernel_sender.h"
#include "security/tls/output.h"
#include "security/tls/shared.h"
#include "security/tls/state.h"
#include "transport/common/link_facts.h"
#include "transport/common/unsent_source.h"

namespace hawser::security::tls {

// A byte stream within TLS, above another stream. The first start() begins the handshake, and StreamSink::ended()
// reports its failure. start() of a stream whose handshake is complete resumes with the given sink. A pause does not
// stop the handshake, for which a send() waits.
//
// Memory: the session of OpenSSL, one record in each direction while it is incomplete, and at most
// `encrypt_bytes_max` of encrypted bytes that the stream below has not accepted. While the stream is paused, up to
// receive_bytes of received bytes wait. HeldMemory bounds the sum over the streams of a loop.
class TlsStream final : public transport::Stream,
                        public transport::LinkFactsSource,
                        public transport::UnsentSource,
                        transport::StreamSink,
                        TlsHandshake::Owner,
                        KernelSender::Owner,
                        exec::Source,
                        MemoryHolder {
 public:
  using MakeSession = TlsHandshake::MakeSession;
  // `running`: `stream` is a server's; it has been started and is paused, and `first` has been received from it.
  TlsStream(std::shared_ptr<TlsShared> shared, std::unique_ptr<transport::Stream> stream, MakeSession make,
            bool running, Bytes first = {});
  ~TlsStream() override;

  // Called once, when the handshake is complete; the stream is paused then. It may destroy the stream later, not in
  // the call. Set it before start().
  void when_open(std::function<void()> opened) { opened_ = std::move(opened); }

  void start(Loop& loop, StreamSink& sink) override;
  void set_sink(StreamSink& sink) noexcept override;
  std::size_t send(std::span<const ConstBuffer> pieces) override;
  void pause() noexcept override;
  void resume() override;
  void finish() noexcept override;
  std::string_view transport() const noexcept override { return transport_; }
  std::string peer() const override { return stream_->peer(); }
  std::string local() const override { return stream_->local(); }
  std::shared_ptr<const Identity> identity() const override;
  bool established() const noexcept override { return state_.opened(); }
  std::optional<transport::LinkFacts> link_facts() const noexcept override {
    return transport::link_facts_of(stream_.get());
  }
  std::string link_details() const override;
  std::size_t unsent() const noexcept override;

  // After the handshake.
  TlsSession& session() noexcept { return *handshake_.session(); }
  const TlsSession& session() const noexcept { return *handshake_.session(); }
  const std::shared_ptr<TlsShared>& shared() const noexcept { return shared_; }

  static constexpr std::size_t receive_bytes = 64 * 1024;
  static constexpr std::size_t encrypt_bytes_max = 128 * 1024;
  // A handshake that is not complete holds so much, with the block into which it receives, and besides its longest
  // message. Measured with OpenSSL 3.0.
  static constexpr std::size_t handshake_bytes = 80 * 1024;
  // Answers to messages of TLS, such as those that demand new keys, that the peer has not taken.
  static constexpr std::size_t answers_bytes_max = 128 * 1024;
  // A server that has failed a handshake discards what the client still sends, until the client ends the connection or
  // one of these is passed. A socket that is closed with unread bytes resets the connection, and the client then may
  // not receive the alert that states the reason.
  static constexpr Duration refused_time_max = std::chrono::seconds(1);
  static constexpr std::size_t refused_bytes_max = 1024 * 1024;

 private:
  MutableBytes receive_space() override;
  void received(std::size_t bytes) override;
  void sendable(std::size_t bytes) override;
  void broken(const Error& reason) override;
  // The end below counts as that of the peer's direction only after close_notify.
  bool continues_after_end() override { return state_.half_closed(); }
  void ended(const Error& reason) override;
  void on_step() override { stepped(); }
  void on_kernel_retry() noexcept override { finish_by_kernel(); }
  bool poll() override;

  void give_up() override;
  // `progress`: bytes that were exchanged with the peer; `all_progress`: it has done everything that it began.
  static constexpr std::size_t all_progress = SIZE_MAX;
  void note_held(std::size_t progress) noexcept;
  void begin_kernel();
  std::size_t send_by_kernel(std::span<const ConstBuffer> pieces, std::size_t offered);
  void answer_by_kernel();
  void end_by_kernel(Error reason);
  void finish_by_kernel() noexcept;

  void advance();
  void stepped();
  void deliver();
  void send_output();
  void refuse();
  void end_refused() noexcept;
  void end(Error reason);
  std::size_t fail_sending(std::size_t done, Error reason);
  void poll_later(bool later);

  // The bytes that a client whose handshake has failed still sends.
  struct Refused {
    std::size_t bytes = 0;  // Discarded.
    MemberTimer<&TlsStream::end_refused> timer;
  };
  // The end of the stream, until poll() reports it.
  struct HeldEnd {
    std::optional<Error> reason = {};
    bool notified = true;  // False: the sink, which is paused, must be notified of it by broken().
  };

  const std::shared_ptr<TlsShared> shared_;
  std::unique_ptr<transport::Stream> stream_;
  const std::string_view transport_;
  Loop* loop_ = nullptr;  // Set by start().
  StreamSink* sink_ = nullptr;
  std::function<void()> opened_;
  TlsHandshake handshake_;
  TlsState state_;
  TlsOutput output_;
  KernelSender kernel_{*this};
  bool paused_ = false;  // By the sink.
  bool delivering_ = false;
  bool later_ = false;  // It is one of the loop's sources.
  bool quiet_ = false;  // The stream below has no more bytes now.
  HeldEnd held_end_;
  Refused refused_{.timer = MemberTimer<&TlsStream::end_refused>(*this)};
};

}  // namespace hawser::security::tls
