#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "hawser/loop.h"
#include "hawser/metadata.h"
#include "hawser/stream.h"
#include "hawser/transport/connection.h"
#include "negotiate/path_guard.h"
#include "negotiate/settle.h"
#include "pipe/loop_turn.h"
#include "pipe/peer_pace.h"
#include "rpc/session/backlog_charge.h"
#include "rpc/session/peer_life.h"
#include "rpc/session/pong_marks.h"
#include "wire/frame.h"
#include "wire/metadata.h"

namespace hawser::detail {
class MemoryFrames;
class RegionTable;
}  // namespace hawser::detail

namespace hawser::rpc {

// The settings of a session: those on which both sides agreed, and those of this side.
struct SessionSettings {
  negotiate::Agreement agreed = {};
  std::shared_ptr<detail::RegionTable> regions = {};  // The memory that this side exposes; null: none.
  std::size_t backlog_bytes_max = 0;                  // At the start; see Session::backlog_mark().
  Duration ping_interval = forever;
  codec::DecodeLimits decode_limits = {};
  detail::ReceiveBudget* budget = nullptr;    // Pays for received data that is kept; null: not counted.
  OwnedCounter* unsent_bytes = nullptr;       // Counts what is charged for sending; null: not counted.
  std::shared_ptr<detail::ReceivePeer> peer;  // Counts the memory of all the peer's connections; null: not counted.
  bool beside_stream = false;  // Messages go beside the stream: should they stop, the peer may live and be reached
                               // otherwise.
};

// The common part of both ends of a connection: sends frames, parses them, and handles streams and keep-alive.
class Session : public transport::MessageSink, public detail::StreamChannel {
 public:
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool closed() const noexcept { return phase_ == Phase::closed; }
  // For a session that is closed and may outlive its loop, which a connection must not.
  void release_connection() noexcept;
  transport::Connection& connection() noexcept { return *connection_; }
  const transport::Connection& connection() const noexcept { return *connection_; }

  // The peer must prove by its first message, until `deadline`, that it agreed on this path, and this side does so,
  // too. Called before the session starts.
  void require_proof(std::unique_ptr<transport::PathProof> proof, Time deadline);
  // Why the peer's proof was refused; empty if it was not.
  std::string_view unproved() const noexcept { return guard_ == nullptr ? std::string_view() : guard_->refusal(); }

  // In the turn of the connection, a message counts with its head. Payloads do not count, because they are copied at
  // most. Copies that a short message asks for count with add_copied().
  static constexpr std::size_t copied_bytes_per_work = 8;

 protected:
  Session(Loop& loop, std::unique_ptr<transport::Connection> connection, const SessionSettings& settings);
  ~Session();

  Loop& session_loop() const noexcept { return loop_; }
  const SessionSettings& settings() const noexcept { return settings_; }

  // Starts the delivery of messages.
  void start_session();
  // Changes these settings of a session that has started. The silence of the peer counts from now on.
  void change_settings(std::size_t backlog_bytes_max, Duration ping_interval);

  // Returns room for the body of `frame` (wire/frame.h). Null if the frame can't be sent; begin_error() returns the
  // reason.
  template <class Frame>
  std::byte* begin_frame(const Frame& frame, std::size_t body_bytes, std::size_t payload_bytes,
                         const Metadata* metadata = nullptr) {
    std::byte* const body = begin_head(body_bytes, payload_bytes, metadata);
    if (body == nullptr) [[unlikely]]
      return nullptr;
    wire::encode(head_.data(), frame,
                 {.metadata_bytes = static_cast<std::uint16_t>(body - head_.data() - wire::header_bytes),
                  .checksum = settings_.agreed.checksum});
    return body;
  }
  // Sends the frame. If memory is exhausted, the session ends: part of the frame may be queued. `owner` is notified
  // then too.
  void end_frame(std::span<const ConstBuffer> pieces = {}, SendCompletion* owner = nullptr) {
    if (settings_.agreed.checksum) [[unlikely]]
      wire::write_checksum(head_, pieces);
    try {
      connection_->commit(head_.size(), pieces, owner);
    } catch (const std::bad_alloc&) {
      end_unsent(owner);
    }
  }
  Error begin_error() const;
  // Sends a frame without metadata, body and payload.
  template <class Frame>
  void send_bare(const Frame& frame) {
    if (begin_frame(frame, 0, 0) != nullptr) end_frame();
  }
  // The length of the body of a PING or PONG: at most transport_probe_bytes_max and at most what the peer receives.
  std::size_t filled_bytes(std::size_t body_bytes) const noexcept;
  // Sends a PING or PONG with a body of zeros.
  template <class Frame>
  void send_filled(const Frame& frame, std::size_t body_bytes) {
    const std::size_t bytes = filled_bytes(body_bytes);
    std::byte* const body = begin_frame(frame, bytes, 0);
    if (body == nullptr) return;
    std::memset(body, 0, bytes);
    end_frame();
  }

  // Receives every frame but PING and PONG. A cut message has its header only: see transport::Message::cut. A frame
  // that the peer must not send ends the session by protocol_error().
  virtual void on_frame(const wire::Frame& frame, const transport::Message& message) = 0;
  // The connection has ended, having sent the stream up to position `sent`. Called once.
  virtual void on_end(const Error& reason, std::uint64_t sent) = 0;

  void protocol_error(std::string text);
  // Ends the session at once, as if the connection had broken.
  void end_session(const Error& reason);
  // The one place for memory that runs out while the peer's messages are handled: they may be as large as the limits
  // allow.
  void end_without_memory() noexcept;
  // For destructors. Without memory for the copy, the connection ends, and the session in the next tick.
  void copy_or_end(SendCompletion& owner) noexcept;
  // Handle frames of streams, in the same way on both ends. `core` is null if the call has ended.
  void on_stream_frame(const wire::StreamDataFrame& item, const wire::Frame& frame, const transport::Message& message,
                       detail::StreamCore* core);
  void on_stream_frame(const wire::StreamEndFrame& end, const wire::Frame& frame, const transport::Message& message,
                       detail::StreamCore* core);
  void on_stream_frame(const wire::CreditFrame& credit, const wire::Frame& frame, const transport::Message& message,
                       detail::StreamCore* core);

  // Access to the peer's memory by frames. Null if the session has ended or the peer does not serve them. May throw
  // std::bad_alloc.
  detail::MemoryFrames* open_memory() { return closed() || !settings_.agreed.peer_memory ? nullptr : &memory(); }
  // Handle MEMORY and MEMORY_REPLY frames, in the same way on both ends.
  void on_memory_frame(const wire::MemoryFrame& request, const wire::Frame& frame, const transport::Message& message);
  void on_memory_frame(const wire::MemoryReplyFrame& reply, const wire::Frame& frame,
                       const transport::Message& message);
  // For select_receive_buffer(): nothing if `frame` is neither.
  std::optional<transport::ReceiveBuffer> select_memory(const wire::Frame& frame, std::size_t payload_bytes);

  // A PONG with that many bytes behind its header has been received.
  virtual void on_pong(std::size_t body_bytes) { static_cast<void>(body_bytes); }
  void on_drained() override;
  detail::ReceiveAccount* receive_account() noexcept final { return account_.bounded() ? &account_ : nullptr; }

  // How the peer fell behind since the previous call, with `bytes` in that time. See PeerPace.
  pipe::PeerPace::Behind falls_behind(std::uint64_t bytes) noexcept;
  detail::ReceiveAccount& account() noexcept { return account_; }
  const detail::ReceiveAccount& account() const noexcept { return account_; }
  // Reads nothing of the peer until it has taken half of send_backlog_bytes_max. A client must not do this because of
  // its own requests: the server may be waiting until the client has read replies.
  void hold() noexcept;
  // The bytes that may wait to be sent before the peer is not read any more: at most send_backlog_bytes_max; less while
  // the memory of the connection, its peer or the loop is used up.
  std::size_t backlog_mark() const noexcept { return backlog_.mark(); }
  bool has_room() const noexcept final { return backlog_.room(); }
  // Must be called when data that the peer has requested has been committed. It may lower backlog_mark(), and end the
  // session.
  void charge_backlog() noexcept { backlog_.on_commit(); }
  // The message that is being delivered has made this side copy these bytes. A copy of copied_bytes_per_work bytes
  // counts as one byte of a head.
  void add_copied(std::size_t bytes) noexcept { turn_.add(bytes / copied_bytes_per_work); }
  bool held() const noexcept { return held_; }
  // There is no memory to keep a stream's item. Either `call` has ended, or its stream ends with this error.
  virtual void on_unkept_item(std::uint32_t call, const Error& why) = 0;

 private:
  friend class detail::MemoryFrames;

  detail::MemoryFrames& memory();

  // `ending`: memory has run out where nothing may throw, so that the session ends in the next tick.
  enum class Phase : std::uint8_t { open, ending, closed };

  // transport::MessageSink
  void on_message(const transport::Message& message) final;
  void on_closed(const Error& reason) final { end_session(reason); }

  // detail::StreamChannel
  Loop& stream_loop() noexcept final { return loop_; }
  std::byte* begin_item(std::uint32_t call, const codec::EncodedSize& size) final;
  void end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) final {
    end_frame(pieces, owner);
    if (!closed()) charge_backlog();
  }
  void send_end(std::uint32_t call) final;
  void send_credit(std::uint32_t call, std::uint32_t bytes) final;
  void copy_and_release_item(SendCompletion& owner) final { copy_or_end(owner); }
  detail::WaitingWriter& writers() noexcept final { return writers_; }
  const codec::DecodeLimits& decode_limits() const noexcept final { return settings_.decode_limits; }

  void deliver(const transport::Message& message);
  void deliver_timed(const transport::Message& message);
  void refuse_frame(std::string_view what, wire::FrameKind kind, std::string_view why);
  void end_rest() noexcept;
  // Reserves the head of a frame and writes its metadata; the header is written at head_. Returns the position of the
  // body.
  std::byte* begin_head(std::size_t body_bytes, std::size_t payload_bytes, const Metadata* metadata) {
    if (metadata != nullptr && !metadata->empty()) [[unlikely]]
      return begin_described(body_bytes, payload_bytes, *metadata);
    return begin_bare(body_bytes, payload_bytes);
  }
  // The same for a frame that has metadata, and for one that has none, or whose metadata counts with the body.
  std::byte* begin_described(std::size_t body_bytes, std::size_t payload_bytes, const Metadata& metadata);
  std::byte* begin_bare(std::size_t body_bytes, std::size_t payload_bytes) {
    const std::size_t head_bytes = wire::header_bytes + body_bytes;
    const bool fits = head_bytes + payload_bytes <= settings_.agreed.send_bytes_max;
    std::byte* const head = fits && !closed() ? connection_->reserve(head_bytes) : nullptr;
    if (head == nullptr) [[unlikely]]
      return not_begun(head_bytes + payload_bytes);
    head_ = {head, head_bytes};
    return head + wire::header_bytes;
  }
  // Memory was exhausted in end_frame().
  void end_unsent(SendCompletion* owner);
  // Stores the reason for begin_error(). Returns null.
  std::byte* not_begun(std::size_t bytes) noexcept;
  void on_cut_message(const transport::Message& message);
  void answer_ping(std::size_t body_bytes);
  void check_life() noexcept;
  void check_peer();
  void start_pings();

  Loop& loop_;
  SessionSettings settings_;
  detail::ReceiveAccount account_;                // Declared before the members that it pays for.
  detail::WaitingWriter writers_;                 // Writers of streams that wait until the backlog is shorter.
  std::unique_ptr<detail::MemoryFrames> memory_;  // Made on first use. Outlives the connection, which uses its loans.
  std::unique_ptr<transport::Connection> connection_;
  BacklogCharge backlog_;
  std::unique_ptr<negotiate::PathGuard> guard_;  // Non-null on paths that were agreed on over a protected stream.
  Phase phase_ = Phase::open;
  bool held_ = false;  // See hold().

  MutableBytes head_;  // The frame between begin_frame() and end_frame().
  // Why the last frame was not begun: the connection has ended, the bytes are too many, or the metadata is too large.
  std::variant<std::monostate, std::size_t, wire::MetadataSize> not_begun_;

  pipe::LoopTurn turn_;
  MemberTimer<&Session::end_rest> rest_;  // Runs while the connection is paused because its turn ended.

  pipe::PeerPace pace_;

  PongMarks pongs_;
  PeerLife peer_life_;
  MemberTimer<&Session::check_life> life_timer_;
};

}  // namespace hawser::rpc
