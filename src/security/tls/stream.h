#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "exec/offload_pool.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/stream.h"
#include "security/tls/context_store.h"
#include "security/tls/held_memory.h"
#include "security/tls/kernel.h"
#include "security/tls/session.h"
#include "transport/common/link_facts.h"
#include "transport/common/unsent_source.h"

namespace hawser::security::tls {

// State that all streams of a TlsServer or TlsClient share. Thread-safe.
struct TlsShared {
  // `threads` 0: handshakes run on the loops.
  // `held_bytes_max` 0: what the peers make the streams hold is not bounded.
  TlsShared(ContextOptions options, Duration reload_interval, unsigned threads, std::size_t handshakes_max,
            std::size_t held_bytes_max = 0)
      : kernel(options.kernel),
        store(std::move(options), reload_interval, [this](bool changed) { files_noticed(changed); }),
        held(held_bytes_max),
        waiting_max(handshakes_max),
        pool(threads == 0 ? nullptr : std::make_unique<exec::OffloadPool>(threads, handshakes_max, nullptr)) {}
  // A thread of the pool may wait for a trial signature, and the thread that watches files uses the pool.
  ~TlsShared() { store.stop(); }

  // Tries what the kernel can encrypt, unless that is known. The first call may load modules, so it belongs on a thread
  // that may block. After a trial that has timed out, there is none for kernel_trial_pause. Throws std::bad_alloc.
  void examine_kernel();
  static constexpr Duration kernel_trial_pause = std::chrono::seconds(10);
  // Does so on a thread of the pool, if there is one.
  void examine_kernel_later();
  // Returns the result. Does not wait for others.
  std::shared_ptr<const KernelSupport> kernel_support() const;

  const TlsKernel kernel;
  ContextStore store;
  HeldMemories held;
  std::atomic<std::uint64_t> handshakes{0};
  std::atomic<std::uint64_t> resumed{0};
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> paths_proved{0};
  std::atomic<std::uint64_t> paths_refused{0};
  std::atomic<std::uint64_t> path_messages_refused{0};
  std::atomic<std::uint64_t> kernel_begun{0};
  std::atomic<std::uint64_t> kernel_refused{0};
  std::atomic<std::uint64_t> kernel_ended{0};
  std::atomic<unsigned> kernel_logged{0};  // The KernelRefusals that the log has, as bits.

 private:
  struct FilesCheck;
  void files_noticed(bool changed) noexcept;

  std::atomic<bool> check_waits_{false};  // A check of the files is in the queue of the pool.
  std::atomic<bool> kernel_known_{false};
  std::mutex kernel_trial_mutex_;  // Held while the kernel is tried. Guards kernel_trial_next_.
  std::chrono::steady_clock::time_point kernel_trial_next_ = {};
  mutable std::mutex kernel_mutex_;
  std::shared_ptr<const KernelSupport> kernel_support_ = std::make_shared<const KernelSupport>(KernelSupport{
      .problem = "it was not tried yet what the kernel can encrypt: connect again"});  // By kernel_mutex_.

 public:
  const std::size_t waiting_max;
  // The last member: its threads use all others, so it ends before them.
  const std::unique_ptr<exec::OffloadPool> pool;
};

TlsCounters counters_of(const TlsShared& shared) noexcept;

// A byte stream within TLS, above another stream. The first start() begins the handshake, and StreamSink::ended()
// reports its failure. start() of a stream whose handshake is complete resumes with the given sink.
//
// Memory: the session of OpenSSL, one record in each direction while it is incomplete, and at most
// `encrypt_bytes_max` of encrypted bytes that the stream below has not accepted. While the stream is paused, up to
// receive_bytes of received bytes wait. HeldMemory bounds the sum over the streams of a loop.
class TlsStream final : public transport::Stream,
                        public transport::LinkFactsSource,
                        public transport::UnsentSource,
                        transport::StreamSink,
                        exec::Source,
                        MemoryHolder {
 public:
  // Makes the session; runs where handshakes run.
  using MakeSession = std::function<Result<std::unique_ptr<TlsSession>>()>;
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
  std::optional<transport::LinkFacts> link_facts() const noexcept override {
    return transport::link_facts_of(stream_.get());
  }
  std::string link_details() const override;
  std::size_t unsent() const noexcept override;

  // After the handshake.
  TlsSession& session() noexcept { return *step_->session; }
  const TlsSession& session() const noexcept { return *step_->session; }
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
  // A step of the handshake, which the loop or another thread performs. It keeps the session if the stream is destroyed
  // meanwhile.
  struct Step {
    explicit Step(TlsStream& of) noexcept : stream(&of) {}
    void perform(TlsShared& shared) noexcept;

    MakeSession make;
    std::unique_ptr<TlsSession> session;
    ByteQueue first;  // Received before the session was made.
    TlsSession::Progress progress = TlsSession::Progress::more;
    std::shared_ptr<const Identity> identity;  // From the peer's certificate.
    Error error;                               // Why it failed.
    std::stop_source stop;  // Stops a function that makes a signature. Requested at the end of the stream.
    std::mutex mutex;
    TlsStream* stream;  // Null after the end of the stream. Guarded by mutex on other threads.
  };
  struct OffloadedStep;
  // The kernel does not report when it has sent all records, so it is asked.
  static constexpr Duration kernel_pause_min = std::chrono::milliseconds(1);
  static constexpr Duration kernel_pause_max = std::chrono::milliseconds(64);
  static constexpr std::uint64_t blocks_per_record = 1024;  // In a full record, of 16 bytes each.

  MutableBytes receive_space() override;
  void received(std::size_t bytes) override;
  void sendable(std::size_t bytes) override;
  void broken(const Error& reason) override;
  // The end below counts as that of the peer's direction only after close_notify.
  bool continues_after_end() override { return half_closed_; }
  void ended(const Error& reason) override;
  bool poll() override;

  void give_up() override;
  // `progress`: bytes that were exchanged with the peer; `all_progress`: it has done everything that it began.
  static constexpr std::size_t all_progress = SIZE_MAX;
  void note_held(std::size_t progress) noexcept;
  void begin_kernel();
  std::size_t send_by_kernel(std::span<const ConstBuffer> pieces, std::size_t offered);
  void answer_by_kernel();
  void end_by_kernel(std::string reason);
  void finish_by_kernel() noexcept;

  void advance();
  void stepped();
  void deliver();
  void send_output();
  void refuse();
  void end_refused() noexcept;
  void end(Error reason);
  void poll_later(bool later);
  bool ready() const noexcept { return open_ && !ended_; }

  const std::shared_ptr<TlsShared> shared_;
  const std::shared_ptr<Step> step_;
  std::unique_ptr<transport::Stream> stream_;
  const std::string_view transport_;
  Loop* loop_ = nullptr;  // Set by start().
  StreamSink* sink_ = nullptr;
  std::function<void()> opened_;
  ByteQueue sending_;  // Encrypted bytes that the stream below is sending.
  const bool server_;
  bool running_;  // The stream below has been started.
  exec::OffloadPool::Ticket ticket_ = 0;
  bool busy_ = false;         // Another thread performs a step of the handshake.
  bool open_ = false;         // The handshake is complete.
  bool ended_ = false;        // The sink has been notified of the end, or will be by poll().
  bool paused_ = false;       // By the sink.
  bool half_closed_ = false;  // The peer has ended its direction, and the sink still sends.
  bool delivering_ = false;
  bool below_blocked_ = false;     // The stream below has not accepted all.
  bool sink_blocked_ = false;      // send() has not accepted all.
  bool finish_wanted_ = false;     // finish() was called.
  bool finished_ = false;          // The end was sent on the stream below.
  bool later_ = false;             // It is one of the loop's sources.
  bool quiet_ = false;             // The stream below has no more bytes now.
  bool given_up_ = false;          // It has ended because of what it held, and a paused sink does not know that.
  bool refused_ = false;           // The handshake has failed, and the client has not ended the connection yet.
  std::size_t refused_bytes_ = 0;  // Discarded since then.
  MemberTimer<&TlsStream::end_refused> refused_timer_{*this};
  std::optional<Error> held_end_;  // Reported by poll().
  bool kernel_wanted_ = false;     // The keys are given to the kernel as soon as possible.
  std::string kernel_problem_;     // Why the kernel does not encrypt; empty: it does, or is not asked to.
  bool broken_by_kernel_ = false;  // The sink, which is paused, is notified of held_end_.
  KernelTls kernel_;
  Duration kernel_pause_ = kernel_pause_min;
  MemberTimer<&TlsStream::finish_by_kernel> kernel_timer_{*this};
};

}  // namespace hawser::security::tls
