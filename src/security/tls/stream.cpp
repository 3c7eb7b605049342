#include "security/tls/stream.h"

#include <array>
#include <exception>
#include <new>
#include <utility>

#include "hawser/detail/loop_access.h"
#include "pipe/null_sink.h"
#include "rpc/server/receive_peers.h"
#include "transport/common/socket_source.h"

namespace hawser::security::tls {
namespace {

std::string_view name_above(std::string_view transport) noexcept {
  return transport == "tcp" ? "tcp+tls" : transport == "unix" ? "unix+tls" : "tls";
}

Error no_memory() { return Error::of_connection(ErrorCode::unavailable, "out of memory"); }

}  // namespace

TlsStream::TlsStream(std::shared_ptr<TlsShared> shared, std::unique_ptr<transport::Stream> stream, MakeSession make,
                     bool running, Bytes first)
    : shared_(std::move(shared)),
      stream_(std::move(stream)),
      transport_(name_above(stream_->transport())),
      handshake_(shared_, std::move(make), running, first, *this) {}

TlsStream::~TlsStream() {
  if (later_) loop_->remove_source(*this);
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
  if (handshake_.server()) {
    stream_->set_sink(*this);
    stream_->resume();
  } else {
    stream_->start(loop, *this);
  }
  advance();
}

// A certificate says more than the kernel does about a peer at a Unix socket.
std::shared_ptr<const Identity> TlsStream::identity() const {
  return state_.opened() && handshake_.identity() != nullptr ? handshake_.identity() : stream_->identity();
}

void TlsStream::set_sink(StreamSink& sink) noexcept { sink_ = &sink; }

// ---- The handshake ----

// Performs the next step: here, or on another thread. The stream below is paused meanwhile, which bounds the input.
void TlsStream::advance() {
  if (state_.phase() != TlsState::Phase::shaking) return;
  if (handshake_.runs_here()) {
    handshake_.run_here();
    return stepped();
  }
  const bool begun = handshake_.submit(*loop_);
  if (begun) state_.begin_step();
  stream_->pause();
  detail::LoopAccess::give_way(*loop_);
  if (begun) return;
  shared_->failed.fetch_add(1, std::memory_order_relaxed);
  end(Error::of_connection(ErrorCode::overloaded, "handshakes_max (" + std::to_string(shared_->waiting_max) +
                                                      ") TLS handshakes wait already: try again later"));
}

void TlsStream::stepped() {
  if (state_.stepping()) state_.end_step();
  if (const auto line = shared_->store.take_line()) loop_->log(line->level, "tls", line->text);
  if (state_.ended()) return;
  if (handshake_.session() != nullptr) send_output();
  switch (handshake_.progress()) {
    case TlsSession::Progress::failed: return refuse();
    case TlsSession::Progress::more:
      if (shared_->pool != nullptr) stream_->resume();
      return;
    case TlsSession::Progress::done: break;
  }
  // poll() passes on what follows the handshake. An end of the stream below must not be received before that.
  stream_->pause();
  if (shared_->kernel != TlsKernel::off) kernel_.want();
  begin_kernel();
  if (state_.ended()) return;
  state_.open();
  note_held(all_progress);
  if (opened_) {
    pause();
    return std::exchange(opened_, nullptr)();
  }
  if (state_.finish_wanted()) finish();
  // The sink is called by the loop, and not from within start() or the step.
  poll_later(true);
}

// ---- Sending ----

void TlsStream::send_output() {
  if (output_.send(*stream_, session().output()) && state_.send_finish()) stream_->finish();
}

std::size_t TlsStream::send(std::span<const ConstBuffer> pieces) {
  if (state_.ended() || state_.finish_wanted()) return 0;
  std::size_t offered = 0;
  for (const ConstBuffer& piece : pieces) offered += piece.size;
  if (!state_.opened() || output_.below_blocked()) {
    output_.set_sink_blocked(offered != 0);
    return 0;
  }
  if (kernel_.begun()) return send_by_kernel(pieces, offered);
  std::size_t done = 0;
  std::array<ConstBuffer, 64> rest;
  try {
    while (done < offered && !output_.below_blocked()) {
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
      const std::size_t written = session().write(std::span(rest.data(), count), encrypt_bytes_max);
      done += written;
      send_output();
      if (written == 0) return fail_sending(done, session().error());
    }
  } catch (const std::bad_alloc&) {
    // A part of a record may be lost, so the connection ends.
    return fail_sending(done, no_memory());
  }
  output_.set_sink_blocked(done < offered);
  if (output_.below_blocked()) note_held(0);
  return done;
}

// The sink is notified by the loop, and not from within send().
std::size_t TlsStream::fail_sending(std::size_t done, Error reason) {
  held_end_.reason = std::move(reason);
  if (!state_.ended()) state_.end();
  poll_later(true);
  return done;
}

void TlsStream::sendable(std::size_t bytes) {
  if (kernel_.begun()) {
    if (bytes != 0) kernel_.count(bytes);
    output_.on_sendable(0);
    if (!state_.ended() && (output_.take_sink_blocked() || bytes != 0)) sink_->sendable(bytes);
    return;
  }
  const std::size_t before = output_.size();
  output_.on_sendable(bytes);
  if (handshake_.session() == nullptr || state_.stepping()) return;
  const std::size_t behind = session().output().bytes().size();
  send_output();
  begin_kernel();
  note_held(before + behind - output_.size() - session().output().bytes().size());
  if (state_.live() && !output_.below_blocked() && output_.take_sink_blocked()) sink_->sendable(0);
}

void TlsStream::finish() noexcept {
  state_.want_finish();
  if (!state_.opened()) return;
  session().shut_down();
  if (kernel_.begun()) return finish_by_kernel();
  try {
    send_output();
  } catch (const std::exception&) {
    // Without close_notify the peer sees that the end is missing.
    if (state_.send_finish()) stream_->finish();
  }
}

// ---- Receiving ----

MutableBytes TlsStream::receive_space() {
  quiet_ = false;
  if (state_.ended() || state_.refused()) return pipe::discard_buffer();
  try {
    return handshake_.input().reserve(state_.opened() ? receive_bytes : receive_bytes / 4);
  } catch (const std::bad_alloc&) {
    end(no_memory());
    return pipe::discard_buffer();
  }
}

void TlsStream::received(std::size_t bytes) {
  if (state_.ended()) return;
  if (state_.refused()) {
    refused_.bytes += bytes;
    if (refused_.bytes > refused_bytes_max) end_refused();
    return;
  }
  if (state_.half_closed()) return session().input().clear();
  if (bytes != 0) {
    handshake_.input().commit(bytes);
    if (!state_.opened()) return advance();
    return deliver();
  }
  if (handshake_.session() != nullptr && !state_.stepping() && session().input().empty()) session().input().clear();
  quiet_ = true;
  note_held(0);
  if (state_.opened() && !paused_ && !later_) sink_->received(0);
}

// Passes decrypted bytes to the sink, until it pauses or no whole record is left.
void TlsStream::deliver() {
  if (state_.phase() != TlsState::Phase::open || paused_ || std::exchange(delivering_, true)) return;
  TlsSession& own = session();
  TlsSession::Read result = TlsSession::Read::data;
  std::size_t progress = 0;
  while (!paused_ && !state_.ended()) {
    const MutableBytes space = sink_->receive_space();
    std::size_t bytes = 0;
    result = own.read(space, bytes);
    // After a demand for new keys, the connection ends.
    if (kernel_.begun() && own.notes().key_demanded && !state_.finish_wanted()) break;
    if (result != TlsSession::Read::data) break;
    sink_->received(bytes);
    progress += bytes;
  }
  delivering_ = false;
  // Answers to the peer's messages of TLS, or an alert.
  if (!own.output().empty()) send_output();
  if (kernel_.begun()) answer_by_kernel();
  if (state_.ended()) return;
  if (paused_ && !own.input().empty()) own.input().shrink();
  note_held(progress);
  if (state_.ended()) return;
  if (own.output().bytes().size() > answers_bytes_max) {
    return end(Error::of_connection(Initiator::peer, ErrorCode::overloaded,
                                    "the peer does not take the answers to its messages of TLS, of which " +
                                        std::to_string(answers_bytes_max) + " bytes wait"));
  }
  if (result == TlsSession::Read::closed) {
    if (sink_->continues_after_end()) {
      state_.half_close();
      return own.input().clear();
    }
    return end(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "the peer closed the connection"));
  }
  if (result == TlsSession::Read::failed) {
    shared_->failed.fetch_add(1, std::memory_order_relaxed);
    return end(own.error());
  }
}

void TlsStream::pause() noexcept {
  paused_ = true;
  if (state_.opened()) stream_->pause();
}

void TlsStream::resume() {
  if (!std::exchange(paused_, false)) return;
  if (state_.stepping()) return;
  if (held_end_.reason || (state_.live() && (!session().input().empty() || session().pending()))) {
    return poll_later(true);
  }
  if (!state_.ended()) stream_->resume();
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
  if (state_.live() && !output_.below_blocked() && output_.take_sink_blocked()) sink_->sendable(0);
  if (paused_) {
    if (!std::exchange(held_end_.notified, true) && held_end_.reason) sink_->broken(Error(*held_end_.reason));
    return true;
  }
  if (held_end_.reason) {
    const Error reason = *std::exchange(held_end_.reason, std::nullopt);
    sink_->ended(reason);
    return true;
  }
  deliver();
  if (paused_ || state_.ended()) return true;
  if (quiet_) sink_->received(0);
  if (!paused_ && !state_.ended()) stream_->resume();
  return true;
}

// ---- Encryption by the kernel ----

// Gives the keys of this side to the kernel when everything that OpenSSL has written has been accepted by the socket.
// Called after the handshake.
void TlsStream::begin_kernel() {
  if (!kernel_.wanted() || output_.below_blocked() || !output_.empty() || !session().output().empty()) return;
  kernel_.give_up();
  if (state_.ended() || state_.finish_wanted()) return;
  Result<void> begun = kernel_.begin(*shared_, *loop_, transport::tcp_socket_of(stream_.get()), session());
  if (!begun) end(std::move(begun.error()));
}

std::string TlsStream::link_details() const { return kernel_.details(); }

// The kernel, or the socket, may have no room for what was accepted, and for close_notify.
std::size_t TlsStream::unsent() const noexcept {
  if (!state_.live() || state_.finish_sent()) return 0;
  if (!kernel_.begun()) return output_.size() + session().output().bytes().size();
  const bool alert = state_.finish_wanted() && session().notes().alert.has_value();
  return kernel_.unsent() + (alert ? 2 : 0);
}

std::size_t TlsStream::send_by_kernel(std::span<const ConstBuffer> pieces, std::size_t offered) {
  Result<std::size_t> taken = kernel_.send(*stream_, pieces, session());
  if (!taken) {
    end_by_kernel(std::move(taken.error()));
    return 0;
  }
  output_.on_passed(*taken == offered);
  return *taken;
}

// Sends what OpenSSL would have sent, and ends the connection if the peer demands new keys.
void TlsStream::answer_by_kernel() {
  if (state_.ended() || state_.finish_wanted()) return;
  if (session().notes().key_demanded) {
    return end_by_kernel(Error::of_connection(ErrorCode::unavailable,
                                              "the peer demands new keys (KeyUpdate), and this kernel cannot replace "
                                              "those of a connection: connect again, or set TlsKernel::off"));
  }
  // An alert beside close_notify, after which the connection ends.
  kernel_.send_alert(session().notes());
}

// Ends the connection with close_notify.
void TlsStream::end_by_kernel(Error reason) {
  shared_->kernel_ended.fetch_add(1, std::memory_order_relaxed);
  session().shut_down();
  kernel_.send_alert(session().notes());
  end(std::move(reason));
  if (!paused_) return;
  // A paused sink may wait until it has sent all, so it must learn of the end.
  held_end_.notified = false;
  poll_later(true);
}

// After finish(): sends close_notify, and then the end of the stream below.
void TlsStream::finish_by_kernel() noexcept {
  if (state_.finish_sent() || !kernel_.finish(*loop_, session().notes())) return;
  if (state_.send_finish()) stream_->finish();
}

// ---- Held memory ----

// Counts what the peer makes this stream hold. Another thread may use the session during a step of the handshake.
void TlsStream::note_held(std::size_t progress) noexcept {
  if (!joined() || state_.ended()) return;
  if (!state_.opened()) return hold(handshake_bytes + shared_->store.options().client_hello_bytes_max, progress);
  hold(session().waiting_bytes() + session().output().capacity() + output_.capacity(), progress);
}

// Called from within a call to any stream of the loop.
void TlsStream::give_up() {
  if (state_.ended()) return;
  if (state_.opened()) {
    session().input().clear();
    session().output().clear();
  }
  held_end_.notified = false;
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
  if (state_.live()) sink_->broken(reason);
}

// A stream below that ends without close_notify may have been cut by anybody in the network.
void TlsStream::ended(const Error& reason) {
  if (state_.ended()) return;
  if (state_.refused()) return end_refused();
  Error error = reason;
  if (!state_.opened()) {
    error.text = "the connection ended during the TLS handshake: " + reason.text;
    shared_->failed.fetch_add(1, std::memory_order_relaxed);
  } else if (!state_.half_closed() && reason.initiator == Initiator::peer) {
    error.text =
        "the connection ended without the end of TLS (close_notify), so that sent data may be missing: " + reason.text;
  }
  end(std::move(error));
}

// The handshake has failed, and the alert has been passed to the stream below.
void TlsStream::refuse() {
  if (!handshake_.server() || handshake_.session() == nullptr) return end(handshake_.error());
  state_.refuse();
  refused_.timer.start(*loop_, loop_->after(refused_time_max));
  send_output();
  stream_->resume();
}

void TlsStream::end_refused() noexcept { end(std::move(handshake_.error())); }

void TlsStream::end(Error reason) {
  if (state_.ended()) return;
  state_.end();
  refused_.timer.stop();
  kernel_.stop();
  stream_->pause();
  held_end_.reason = std::move(reason);
  if (paused_ && state_.opened()) return;
  // From the loop: the sink is not called from within start().
  paused_ = false;
  poll_later(true);
}

}  // namespace hawser::security::tls
