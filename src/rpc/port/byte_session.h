#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/timer.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/stream.h"
#include "pipe/buffered_stream.h"
#include "pipe/held_charge.h"
#include "pipe/loop_turn.h"
#include "pipe/pause_reasons.h"
#include "pipe/peer_pace.h"
#include "pipe/quiet_time.h"
#include "pipe/receive_block.h"
#include "pipe/standstill.h"
#include "pipe/stream_state.h"
#include "rpc/port/memory_queue.h"
#include "rpc/port/port_session.h"
#include "rpc/port/send_mark.h"
#include "transport/common/link_facts.h"

namespace hawser::rpc {

// A session of another protocol over the byte stream of its connection: the part that is the same for all of them.
// Receives bytes and shows them to the protocol; sends what the protocol queues at the end of the tick; stops reading
// while too much waits to be sent; ends a connection whose peer is too slow. Loop's thread only.
class ByteSession : public PortSession, transport::StreamSink, exec::TickEnd, MemoryWaiter {
 public:
  // Bytes are received into blocks of this size. The bytes that the protocol does not take must fit into one.
  static constexpr std::size_t receive_block_bytes = 64 * 1024;
  // After the end of the stream has been sent, the peer's end is awaited for so long, with what it sends ignored. A
  // stream that still holds bytes for the peer is kept until the peer has taken none for two ping intervals, or for
  // half_closed_max() if it has ended its direction.
  static constexpr Duration linger_max = std::chrono::seconds(1);

  ~ByteSession() override;

  // The time in which a connection has neither work nor a byte, so that it may be closed by leave(). A client that
  // calls without a pause over a wide area is quiet for less.
  static constexpr Duration quiet_min = std::chrono::seconds(1);

  // ---- PortSession ----
  // For protocols that cannot ask the client to connect again: the connection ends when it is quiet.
  bool leave() override;
  unsigned silent_checks() noexcept override;
  void end_if_slow(std::uint64_t bytes) override;
  void abort(const Error& why) override { end_session(why); }
  void options_changed() override;
  void describe(ConnectionReport& report) const override {
    report.transport = peer_name().starts_with("unix:") ? "unix" : "tcp";
    report.received_bytes = arrived_;
    report.sent_bytes = stream_.sent();
    report.backlog = backlog() + send_mark_.waiting();
    report.memory_bytes = account_.used();
    report.paused = read_paused_;
    report.link = transport::link_facts_of(stream_.get());
    report.details = transport::link_details_of(stream_.get());
  }

  // ---- detail::ReplySink ----
  void fail_connection() noexcept override;
  void copy_and_release(SendCompletion& owner) override { queue().copy_and_release(owner); }
  void refuse_unkept(std::uint32_t call) override { reply_error(call, unkept_error(account_)); }

 protected:
  // `stream` runs on host.loop and is paused. `first` has been received from it already.
  ByteSession(PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first);

  // ---- The protocol ----

  // Takes bytes from the front of `bytes`, at best one message, and returns their number. 0: more bytes are needed; it
  // is called again when there are more. `block` holds the bytes: who keeps views of them shares it.
  virtual std::size_t take(Bytes bytes, Block& block) = 0;
  // Memory for the next bytes, if the protocol wants them received in place, such as the rest of a long body. Asked
  // only when all received bytes have been taken. Empty: they are received into a block and shown to take().
  virtual MutableBytes direct_space() { return {}; }
  // So many bytes lie at the front of the last direct_space().
  virtual void direct_received(std::size_t bytes) { static_cast<void>(bytes); }
  // The time for which calls go on and replies are sent after the peer has ended its direction, counted from the last
  // byte that it took. 0: the end of the peer's direction ends its calls, as an RPC client's end does, and ends the
  // connection when finished replies have been sent.
  virtual Duration half_closed_max() const noexcept { return Duration::zero(); }
  // True while the session works on a request that is not an active call yet: it does not wait for its peer.
  virtual bool working() const noexcept { return false; }
  // True while replies to what was taken will be queued later, other than those of active calls: the end of the
  // peer's direction does not end the session then, if half_closed_max() is not 0. replies_are_done() notifies of a
  // change.
  virtual bool replies_due() const noexcept { return false; }
  // The peer has ended its direction, and everything is taken that it has sent. The session ends if no reply is due
  // behind this. Called again when the replies have changed.
  virtual void on_peer_end() {}
  // True while the session must not be destroyed although its connection has ended and no call is active. It may still
  // send, also after finish() and after the end of the peer's direction if half_closed_max() is not 0. check_idle() or
  // send_soon() follows when that ends.
  virtual bool occupied() const noexcept { return false; }
  // True while a message of the peer has begun and is not complete, so that end_if_slow() applies.
  virtual bool receiving() const noexcept = 0;
  // The message comes too slowly. True: the protocol has answered it, and finish() was called.
  virtual bool answer_slow(const Error& why) {
    static_cast<void>(why);
    return false;
  }
  // The backlog was above backlog_mark(), and half of that is free again.
  virtual void on_drained() {}
  // Adds bytes to the queue that can be sent now. Called at each send_soon() and whenever the queue has been sent, for
  // protocols that decide late what is sent next.
  virtual void produce() {}
  // Nothing more is taken: finish() was called. Called once.
  virtual void on_finish() {}
  // The connection has ended, and the active calls have been requested to stop. Called once.
  virtual void on_end(const Error& reason) { static_cast<void>(reason); }
  // No call is active any more, the session goes away, and the connection has not ended.
  virtual void on_no_calls() {}

  void on_start() override;
  void check_idle() final;

  // ---- For the protocol ----

  bool closed() const noexcept { return stream_.closed(); }
  // True after finish(): nothing more is taken.
  bool finishing() const noexcept { return state_.finishing(); }
  // True after the end of the peer's direction, if the session goes on.
  bool peer_ended() const noexcept { return state_.peer_ended(); }
  // A message of the peer is complete.
  void message_received() noexcept { ++messages_; }

  // Returns memory for `bytes` bytes behind everything that is queued; commit() queues the first part of it. The queue
  // accepts bytes of an ended connection and drops them.
  std::byte* reserve(std::size_t bytes) { return queue().reserve(bytes); }
  void commit(std::size_t bytes) {
    queue().commit(bytes);
    queued_more();
  }
  // The queue itself. send_soon() sends what is added to it there.
  pipe::SendQueue& queue() noexcept { return stream_.queue(); }
  void send_soon() {
    if (!closed() && !queued()) host().loop.at_tick_end(*this);
  }
  // Sends at once what can be sent, so that the peer works on it meanwhile. send_soon() is still needed for the rest.
  void send_now() { send_queued(); }
  void write(Bytes bytes);
  void write(std::string_view text) { write(as_bytes(text)); }
  // Queues memory of `owner`, which is notified when it has been sent. Without an owner, it is copied.
  void borrow(std::span<const ConstBuffer> pieces, SendCompletion* owner);
  std::size_t backlog() const noexcept { return stream_.backlog(); }
  // Bytes that the peer, or the kernel on its behalf, has taken so far.
  std::uint64_t sent_bytes() const noexcept { return stream_.sent(); }
  // At most send_backlog_bytes_max; less while the memory of the connection, its peer or the loop is used up.
  std::size_t backlog_mark() const noexcept { return send_mark_.bytes(); }
  bool has_room() const noexcept { return backlog() <= send_mark_.bytes(); }
  // From now on, backlog_mark() is at most `bytes`.
  void limit_backlog(std::size_t bytes) {
    if (send_mark_.set_limit(bytes)) [[unlikely]]
      renew_mark();
  }
  // False while that memory is used up.
  bool memory_left() const noexcept { return send_mark_.memory_left(); }
  // For a protocol that keeps bytes which cannot be queued yet. They count as the backlog does, except that the
  // connection is still read.
  void set_waiting(std::size_t bytes) noexcept { send_mark_.set_waiting(bytes, backlog()); }
  void replies_are_done() { update_reading(); }

  // While the session is paused, nothing is received and take() is not called.
  void pause();
  void resume();
  // While the session holds, take() is not called, but the connection is still read, up to ahead_bytes_max bytes, so
  // that the end of the peer is noticed. For protocols that answer one request after another.
  void hold() noexcept { pauses_.add(pipe::PauseReason::hold); }
  void release();
  static constexpr std::size_t ahead_bytes_max = 16 * 1024;
  // Takes nothing more. Sends what is queued and, once the session is not occupied(), the end of the stream. Ends the
  // session when the peer has ended it too.
  void finish();
  // Ends the connection at once.
  void end_session(const Error& why);
  // Ends it because the peer violated the protocol. Logs and counts that.
  void protocol_error(std::string text);

  // The memory that this connection uses. A message that is being received is charged by set_arriving().
  detail::ReceiveAccount& account() noexcept { return account_; }
  detail::ReceiveAccount* bounded_account() noexcept { return account_.bounded() ? &account_ : nullptr; }

 private:
  MutableBytes receive_space() override;
  void received(std::size_t bytes) override;
  void sendable(std::size_t bytes) override;
  void broken(const Error& reason) override { end_session(reason); }
  bool continues_after_end() override;
  bool sends_rest();
  void ended(const Error& reason) override { end_session(reason); }
  void on_tick_end() override { flush(); }

  bool waits_for_peer() const noexcept {
    return active_calls() == 0 && !pauses_.has(pipe::PauseReason::hold) && !working() && backlog() == 0;
  }
  bool may_take() const noexcept { return !closed() && !pauses_.any() && !finishing(); }
  void take_all() noexcept;
  bool turn_over(std::size_t bytes);
  void continue_turn();
  void drop_block() noexcept;
  void update_reading();
  bool make_room();
  void park();
  // ---- MemoryWaiter ----
  bool try_to_receive(bool beyond) noexcept override;
  void end_late() noexcept override { end_session(unkept_error(account_)); }
  void wait_to_receive() noexcept;
  bool may_exceed() const noexcept { return host().memory_queue.may_exceed(*this); }
  void stop_exceeding() noexcept;
  std::size_t room_bytes() const noexcept;
  void queued_more();
  void flush();
  void send_queued() {
    stream_.send_produced([this] { produce(); });
  }
  bool above_mark() const noexcept { return pauses_.has(pipe::PauseReason::backlog); }
  void compare_with_mark() noexcept;
  void drained();
  void want_mark() noexcept { send_mark_.renew(host().options.send_backlog_bytes_max, backlog()); }
  void renew_mark();
  void watch_backlog();
  void check_life();
  void check_end();

  pipe::BufferedStream stream_;  // Closed once the connection has ended.
  pipe::StreamState state_;
  const std::shared_ptr<detail::ReceivePeer> receive_peer_;
  detail::ReceiveAccount account_;
  SendMark send_mark_;

  Buffer first_;
  pipe::ReceiveBlock block_;
  pipe::HeldCharge block_charge_;  // For block_.
  bool direct_ = false;            // The last receive_space() was a direct_space().
  bool taking_ = false;            // take_all() is running.
  pipe::PauseReasons pauses_;
  bool read_paused_ = true;  // The stream is paused.
  pipe::LoopTurn turn_;
  MemberTimer<&ByteSession::continue_turn> rest_;  // Runs while a reason is PauseReason::turn.

  // Runs while bytes wait for the peer to take them, after the peer's end, and after finish().
  MemberTimer<&ByteSession::check_life> life_;
  // For life_: of the bytes that have been sent; after finish_sent(), of those that the stream still holds.
  pipe::Standstill stuck_;

  std::uint64_t arrived_ = 0;  // Bytes since the start.
  std::uint64_t messages_ = 0;
  pipe::PeerPace pace_;
  pipe::Standstill silence_;  // For silent_checks(): of the bytes of both directions.
  pipe::QuietTime quiet_;     // For leave().
};

}  // namespace hawser::rpc
