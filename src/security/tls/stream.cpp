#include "security/tls/stream.h"

#include <array>
#include <exception>
#include <new>
#include <utility>

#include "hawser/detail/loop_access.h"
#include "pipe/null_sink.h"
#include "rpc/server/receive_peers.h"

namespace hawser::security::tls {
namespace {

std::string_view name_above(std::string_view transport) noexcept {
  return transport == "tcp" ? "tcp+tls" : transport == "unix" ? "unix+tls" : "tls";
}

Error no_memory() { return Error::of_connection(ErrorCode::unavailable, "out of memory"); }

}  // namespace

TlsCounters counters_of(const TlsShared& shared) noexcept {
  const auto get = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {.handshakes = get(shared.handshakes),
          .resumed = get(shared.resumed),
          .handshakes_failed = get(shared.failed),
          .paths_proved = get(shared.paths_proved),
          .paths_refused = get(shared.paths_refused),
          .path_messages_refused = get(shared.path_messages_refused),
          .reloads = shared.store.reloads(),
          .reloads_failed = shared.store.reloads_failed(),
          .signatures = get(shared.store.options().signing->made),
          .signatures_failed = get(shared.store.options().signing->failed),
          .held_bytes = get(shared.held.totals().bytes),
          .held_ended = get(shared.held.totals().ended),
          .kernel_begun = get(shared.kernel_begun),
          .kernel_refused = get(shared.kernel_refused),
          .kernel_ended = get(shared.kernel_ended)};
}

// Checks the files of certificates on a thread of the pool, which may block: a trial signature may.
struct TlsShared::FilesCheck final : detail::Posted {
  explicit FilesCheck(TlsShared& of) noexcept : shared(of) {}
  void run() override {
    shared.check_waits_.store(false);
    shared.store.check();
  }
  TlsShared& shared;  // Its pool, which runs this, ends before it.
};

// On the thread that watches files.
void TlsShared::files_noticed(bool changed) noexcept {
  if (changed) store.note_changed();
  // Without threads there are no functions that make trial signatures.
  if (pool == nullptr) return store.check();
  if (check_waits_.exchange(true)) return;
  try {
    if (pool->submit(&store, std::make_unique<FilesCheck>(*this)) != 0) return;
  } catch (const std::exception&) {
    // As if the queue were full.
  }
  check_waits_.store(false);
  constexpr Duration busy_pause = std::chrono::milliseconds(100);
  store.check_later(busy_pause);
}

// The step that another thread performs, and then the notification of the loop.
struct TlsStream::OffloadedStep final : detail::Posted {
  struct Done final : detail::Posted {
    explicit Done(std::shared_ptr<Step> of) noexcept : step(std::move(of)) {}
    void run() override {
      if (step->stream != nullptr) step->stream->stepped();
    }
    const std::shared_ptr<Step> step;
  };
  OffloadedStep(TlsShared& of, std::shared_ptr<Step> what)
      : shared(of), step(what), done(std::make_unique<Done>(std::move(what))) {}
  void run() override {
    step->perform(shared);
    const std::lock_guard lock(step->mutex);
    // The loop outlives its streams.
    if (step->stream != nullptr) step->stream->loop_->post(std::unique_ptr<detail::Posted>(std::move(done)));
  }
  TlsShared& shared;  // Its pool, which runs this, ends before it.
  const std::shared_ptr<Step> step;
  std::unique_ptr<Done> done;
};

void TlsStream::Step::perform(TlsShared& shared) noexcept {
  try {
    if (session == nullptr) {
      // The end of a handshake may be on the loop.
      if (shared.kernel != TlsKernel::off) shared.examine_kernel();
      Result<std::unique_ptr<TlsSession>> made = make();
      if (made) {
        session = std::move(*made);
        session->input().swap(first);
      } else {
        error = std::move(made.error());
        error.scope = ErrorScope::connection;
        progress = TlsSession::Progress::failed;
      }
    }
    if (session != nullptr) {
      progress = session->handshake(stop.get_token());
      if (progress == TlsSession::Progress::failed) error = session->error();
      if (progress == TlsSession::Progress::done && session->peer_certificate() != nullptr) {
        identity = std::make_shared<const Identity>(identity_of(session->peer_certificate()));
      } else if (progress == TlsSession::Progress::done && !session->key_name().empty()) {
        identity = std::make_shared<const Identity>(
            Identity{.kind = Identity::Kind::shared_key, .subject = std::string(session->key_name())});
      }
    }
  } catch (const std::exception&) {
    progress = TlsSession::Progress::failed;
    error = no_memory();
  }
  if (progress == TlsSession::Progress::failed) shared.failed.fetch_add(1, std::memory_order_relaxed);
  if (progress != TlsSession::Progress::done) return;
  shared.handshakes.fetch_add(1, std::memory_order_relaxed);
  if (session->resumed()) shared.resumed.fetch_add(1, std::memory_order_relaxed);
}

TlsStream::TlsStream(std::shared_ptr<TlsShared> shared, std::unique_ptr<transport::Stream> stream, MakeSession make,
                     bool running, Bytes first)
    : shared_(std::move(shared)),
      step_(std::make_shared<Step>(*this)),
      stream_(std::move(stream)),
      transport_(name_above(stream_->transport())),
      server_(running),
      running_(running) {
  step_->make = std::move(make);
  if (!first.empty()) step_->first.append(first);
}

TlsStream::~TlsStream() {
  if (later_) loop_->remove_source(*this);
  if (busy_) {
    shared_->pool->withdraw(this, ticket_);
    step_->stop.request_stop();
  }
  const std::lock_guard lock(step_->mutex);
  step_->stream = nullptr;
}

void TlsStream::start(Loop& loop, StreamSink& sink) {
  if (loop_ != nullptr) {
    set_sink(sink);
    return resume();
  }
  loop_ = &loop;
  sink_ = &sink;
  join(shared_->held.of(loop), rpc::receive_peer_of(stream_->peer()));
  note_held(all_progress);
  if (std::exchange(running_, true)) {
    stream_->set_sink(*this);
    stream_->resume();
  } else {
    stream_->start(loop, *this);
  }
  advance();
}

// A certificate says more than the kernel does about a peer at a Unix socket.
std::shared_ptr<const Identity> TlsStream::identity() const {
  return open_ && step_->identity != nullptr ? step_->identity : stream_->identity();
}

void TlsStream::set_sink(StreamSink& sink) noexcept { sink_ = &sink; }

// ---- The handshake ----

// Performs the next step: here, or on another thread. The stream below is paused meanwhile, which bounds the input.
void TlsStream::advance() {
  if (busy_ || open_ || ended_) return;
  if (shared_->pool == nullptr || (server_ && step_->session != nullptr && step_->session->awaits_short_end())) {
    step_->perform(*shared_);
    return stepped();
  }
  auto work = std::make_unique<OffloadedStep>(*shared_, step_);
  busy_ = true;
  stream_->pause();
  ticket_ = shared_->pool->submit(this, std::move(work));
  detail::LoopAccess::give_way(*loop_);
  if (ticket_ == 0) {
    busy_ = false;
    shared_->failed.fetch_add(1, std::memory_order_relaxed);
    end(Error::of_connection(ErrorCode::overloaded, "handshakes_max (" + std::to_string(shared_->waiting_max) +
                                                        ") TLS handshakes wait already: try again later"));
  }
}

void TlsStream::stepped() {
  busy_ = false;
  if (const auto line = shared_->store.take_line()) loop_->log(line->level, "tls", line->text);
  if (ended_) return;
  if (step_->session != nullptr) send_output();
  switch (step_->progress) {
    case TlsSession::Progress::failed: return refuse();
    case TlsSession::Progress::more:
      if (shared_->pool != nullptr && !paused_) stream_->resume();
      return;
    case TlsSession::Progress::done: break;
  }
  // poll() passes on what follows the handshake. An end of the stream below must not be received before that.
  stream_->pause();
  kernel_wanted_ = shared_->kernel != TlsKernel::off;
  begin_kernel();
  if (ended_) return;
  open_ = true;
  note_held(all_progress);
  if (opened_) {
    pause();
    return std::exchange(opened_, nullptr)();
  }
  if (finish_wanted_) finish();
  // The sink is called by the loop, and not from within start() or the step.
  poll_later(true);
}

// ---- Sending ----

void TlsStream::send_output() {
  ByteQueue& output = step_->session->output();
  for (;;) {
    if (below_blocked_) return;
    if (sending_.empty()) {
      if (output.empty()) break;
      sending_.swap(output);
    }
    const Bytes bytes = sending_.bytes();
    const ConstBuffer piece{bytes.data(), bytes.size()};
    const std::size_t taken = stream_->send(std::span(&piece, 1));
    if (taken != 0) sending_.consume(taken);
    below_blocked_ = taken < piece.size;
  }
  if (finish_wanted_ && (open_ || refused_) && !std::exchange(finished_, true)) stream_->finish();
}

std::size_t TlsStream::send(std::span<const ConstBuffer> pieces) {
  if (ended_ || finish_wanted_) return 0;
  std::size_t offered = 0;
  for (const ConstBuffer& piece : pieces) offered += piece.size;
  if (!open_ || below_blocked_) {
    sink_blocked_ = offered != 0;
    return 0;
  }
  if (kernel_.begun()) return send_by_kernel(pieces, offered);
  TlsSession& session = *step_->session;
  std::size_t done = 0;
  std::array<ConstBuffer, 64> rest;
  try {
    while (done < offered && !below_blocked_) {
      // The pieces behind the `done` bytes that have been encrypted.
      std::size_t skipped = done;
      std::size_t count = 0;
      for (const ConstBuffer& piece : pieces) {
        if (count == rest.size()) break;
        if (skipped >= piece.size) {
          skipped -= piece.size;
          continue;
        }
        rest[count++] = {piece.data + skipped, piece.size - skipped};
        skipped = 0;
      }
      const std::size_t written = session.write(std::span(rest.data(), count), encrypt_bytes_max);
      done += written;
      send_output();
      if (written == 0) {
        held_end_ = session.error();
        ended_ = true;
        poll_later(true);
        return done;
      }
    }
  } catch (const std::bad_alloc&) {
    // A part of a record may be lost, so the connection ends.
    held_end_ = no_memory();
    ended_ = true;
    poll_later(true);
    return done;
  }
  sink_blocked_ = done < offered;
  if (below_blocked_) note_held(0);
  return done;
}

void TlsStream::sendable(std::size_t bytes) {
  if (kernel_.begun()) {
    if (bytes != 0) kernel_.count(bytes, 1);
    below_blocked_ = false;
    if (!ended_ && (std::exchange(sink_blocked_, false) || bytes != 0)) sink_->sendable(bytes);
    return;
  }
  const std::size_t before = sending_.bytes().size();
  if (bytes != 0) sending_.consume(bytes);
  below_blocked_ = false;
  if (step_->session == nullptr || busy_) return;
  const std::size_t behind = step_->session->output().bytes().size();
  send_output();
  begin_kernel();
  note_held(before + behind - sending_.bytes().size() - step_->session->output().bytes().size());
  if (open_ && !below_blocked_ && !ended_ && std::exchange(sink_blocked_, false)) sink_->sendable(0);
}

void TlsStream::finish() noexcept {
  finish_wanted_ = true;
  if (!open_) return;
  step_->session->shut_down();
  if (kernel_.begun()) return finish_by_kernel();
  try {
    send_output();
  } catch (const std::exception&) {
    // Without close_notify the peer sees that the end is missing.
    if (!std::exchange(finished_, true)) stream_->finish();
  }
}

// ---- Receiving ----

MutableBytes TlsStream::receive_space() {
  quiet_ = false;
  if (ended_ || refused_) return pipe::discard_buffer();
  try {
    ByteQueue& input = step_->session != nullptr ? step_->session->input() : step_->first;
    return input.reserve(open_ ? receive_bytes : receive_bytes / 4);
  } catch (const std::bad_alloc&) {
    end(no_memory());
    return pipe::discard_buffer();
  }
}

void TlsStream::received(std::size_t bytes) {
  if (ended_) return;
  if (refused_) {
    refused_bytes_ += bytes;
    if (refused_bytes_ > refused_bytes_max) end_refused();
    return;
  }
  if (half_closed_) return step_->session->input().clear();
  if (bytes != 0) {
    ByteQueue& input = step_->session != nullptr ? step_->session->input() : step_->first;
    input.commit(bytes);
    if (!open_) return advance();
    return deliver();
  }
  if (step_->session != nullptr && !busy_ && step_->session->input().empty()) step_->session->input().clear();
  quiet_ = true;
  note_held(0);
  if (open_ && !paused_ && !later_) sink_->received(0);
}

// Passes decrypted bytes to the sink, until it pauses or no whole record is left.
void TlsStream::deliver() {
  if (!ready() || paused_ || half_closed_ || std::exchange(delivering_, true)) return;
  TlsSession& session = *step_->session;
  TlsSession::Read result = TlsSession::Read::data;
  std::size_t progress = 0;
  while (!paused_ && !ended_) {
    const MutableBytes space = sink_->receive_space();
    std::size_t bytes = 0;
    result = session.read(space, bytes);
    // After a demand for new keys, the connection ends.
    if (kernel_.begun() && session.notes().key_demanded && !finish_wanted_) break;
    if (result != TlsSession::Read::data) break;
    sink_->received(bytes);
    progress += bytes;
  }
  delivering_ = false;
  // Answers to the peer's messages of TLS, or an alert.
  if (!session.output().empty()) send_output();
  if (kernel_.begun()) answer_by_kernel();
  if (ended_) return;
  if (paused_ && !session.input().empty()) session.input().shrink();
  note_held(progress);
  if (ended_) return;
  if (session.output().bytes().size() > answers_bytes_max) {
    return end(Error::of_connection(Initiator::peer, ErrorCode::overloaded,
                                    "the peer does not take the answers to its messages of TLS, of which " +
                                        std::to_string(answers_bytes_max) + " bytes wait"));
  }
  if (result == TlsSession::Read::closed) {
    half_closed_ = sink_->continues_after_end();
    if (half_closed_) return session.input().clear();
    return end(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "the peer closed the connection"));
  }
  if (result == TlsSession::Read::failed) {
    shared_->failed.fetch_add(1, std::memory_order_relaxed);
    return end(session.error());
  }
}

void TlsStream::pause() noexcept {
  paused_ = true;
  if (!busy_ && loop_ != nullptr) stream_->pause();
}

void TlsStream::resume() {
  if (!std::exchange(paused_, false)) return;
  if (busy_) return;
  if (held_end_ || (open_ && !ended_ && (!step_->session->input().empty() || step_->session->pending()))) {
    return poll_later(true);
  }
  if (!ended_) stream_->resume();
}

void TlsStream::poll_later(bool later) {
  if (later_ == later) return;
  later_ = later;
  if (later) {
    loop_->add_source(*this);
  } else {
    loop_->remove_source(*this);
  }
}

bool TlsStream::poll() {
  poll_later(false);
  if (paused_ && held_end_ && std::exchange(given_up_, false)) sink_->broken(*held_end_);
  if (open_ && !ended_ && !below_blocked_ && std::exchange(sink_blocked_, false)) sink_->sendable(0);
  if (paused_) {
    if (std::exchange(broken_by_kernel_, false) && held_end_) sink_->broken(Error(*held_end_));
    return true;
  }
  if (held_end_) {
    const Error reason = *std::exchange(held_end_, std::nullopt);
    sink_->ended(reason);
    return true;
  }
  deliver();
  if (paused_ || ended_) return true;
  if (quiet_) sink_->received(0);
  if (!paused_ && !ended_) stream_->resume();
  return true;
}

// ---- Held memory ----

// Counts what the peer makes this stream hold. Another thread may use the session during a step of the handshake.
void TlsStream::note_held(std::size_t progress) noexcept {
  if (!joined() || ended_) return;
  if (!open_) return hold(handshake_bytes + shared_->store.options().client_hello_bytes_max, progress);
  hold(session().waiting_bytes() + session().output().capacity() + sending_.capacity(), progress);
}

// Called from within a call to any stream of the loop.
void TlsStream::give_up() {
  if (ended_) return;
  if (open_) {
    step_->session->input().clear();
    step_->session->output().clear();
  }
  given_up_ = true;
  Error reason = Error::of_connection(Initiator::peer, ErrorCode::overloaded, {});
  try {
    reason.text =
        "all connections of the loop hold more than TlsServerOptions::held_bytes_max, those of this peer hold the "
        "most, and the bytes of this one have waited longest: raise the limit, or accept fewer connections";
  } catch (const std::bad_alloc&) {
    reason.text = "out of memory";  // So short that it needs no memory.
  }
  end(std::move(reason));
  poll_later(true);
}

// ---- The end ----

void TlsStream::broken(const Error& reason) {
  if (open_ && !ended_) sink_->broken(reason);
}

// A stream below that ends without close_notify may have been cut by anybody in the network.
void TlsStream::ended(const Error& reason) {
  if (ended_) return;
  if (refused_) return end_refused();
  Error error = reason;
  if (!open_) {
    error.text = "the connection ended during the TLS handshake: " + reason.text;
    shared_->failed.fetch_add(1, std::memory_order_relaxed);
  } else if (!half_closed_ && reason.initiator == Initiator::peer) {
    error.text =
        "the connection ended without the end of TLS (close_notify), so that sent data may be missing: " + reason.text;
  }
  end(std::move(error));
}

// The handshake has failed, and the alert has been passed to the stream below.
void TlsStream::refuse() {
  if (!server_ || step_->session == nullptr) return end(step_->error);
  refused_ = true;
  finish_wanted_ = true;
  refused_timer_.start(*loop_, loop_->after(refused_time_max));
  send_output();
  if (!paused_) stream_->resume();
}

void TlsStream::end_refused() noexcept { end(std::move(step_->error)); }

void TlsStream::end(Error reason) {
  if (std::exchange(ended_, true)) return;
  refused_timer_.stop();
  kernel_timer_.stop();
  stream_->pause();
  if (paused_ && open_) {
    held_end_ = std::move(reason);
    return;
  }
  // From the loop: the sink is not called from within start().
  held_end_ = std::move(reason);
  paused_ = false;
  poll_later(true);
}

}  // namespace hawser::security::tls
