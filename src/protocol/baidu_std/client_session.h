#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/brpc.h"
#include "hawser/detail/receive_account.h"
#include "hawser/detail/stream_core.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/stream.h"
#include "pipe/buffered_stream.h"
#include "pipe/receive_block.h"
#include "protocol/baidu_std/frame_receiver.h"
#include "protocol/baidu_std/rpc_meta.h"
#include "protocol/baidu_std/stream_end.h"
#include "rpc/client/client_protocol.h"
#include "rpc/client/further_streams.h"
#include "wire/call_table.h"

namespace hawser::protocol::baidu_std {

// The client's end of one connection: its calls in flight. Loop's thread only.
class BaiduStdClientSession final : public rpc::ProtocolSession,
                                    public detail::StreamChannel,
                                    transport::StreamSink,
                                    exec::TickEnd,
                                    public std::enable_shared_from_this<BaiduStdClientSession> {
 public:
  static constexpr std::size_t receive_block_bytes = 64 * 1024;

  // `owner` outlives the connection's end.
  BaiduStdClientSession(Loop& loop, std::unique_ptr<transport::Stream> stream, BaiduStdClientOptions options,
                        Owner& owner);
  ~BaiduStdClientSession() override;

  // ---- rpc::ProtocolSession ----
  void begin() override;
  void end(const Error& reason) override;
  std::size_t calls_in_flight() const noexcept override { return calls_.size(); }
  std::size_t free_places() const noexcept override { return calls_.calls_max() - calls_.size(); }
  Time last_used() const noexcept override { return last_used_; }
  std::string_view transport_name() const noexcept override { return stream_->transport(); }

  // ---- detail::CallChannel ----
  Loop& loop() noexcept override { return loop_; }
  void start(detail::CallOperation& operation) override;
  void abandon(detail::CallOperation& operation) noexcept override;
  void copy_and_release(SendCompletion& owner) override { stream_.queue().copy_and_release(owner); }
  std::weak_ptr<detail::CallChannel> weak() noexcept override { return weak_from_this(); }
  void cancel(std::uint32_t call, const Error& error) override;

 private:
  struct Stream : StreamEnd {
    bool peer_reads = false;   // Known once the stream is open.
    bool end_wanted = false;   // The caller has ended its items before the stream was open.
    bool close_sent = false;   // The caller writes no more, and the server has been notified.
    bool awaits_reply = true;  // The reply has not come.
  };

  // A stream of a call beside its first. `id` is unique among those of all streams of the connection.
  struct FurtherStream final : Stream, detail::StreamChannel {
    explicit FurtherStream(BaiduStdClientSession& of) noexcept : session(of) {}
    // Its core calls these, and not those of the session.
    Loop& stream_loop() noexcept override { return session.loop_; }
    std::byte* begin_item(std::uint32_t, const codec::EncodedSize& size) override {
      return session.begin_item_of(*this, size);
    }
    void end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) override {
      session.end_item(pieces, owner);
    }
    void send_end(std::uint32_t) override { session.send_end_of(*this); }
    void send_credit(std::uint32_t, std::uint32_t bytes) override { session.send_credit_of(*this, bytes); }
    void copy_and_release_item(SendCompletion& owner) override { session.copy_and_release_item(owner); }
    bool has_room() const noexcept override { return session.has_room(); }
    detail::WaitingWriter& writers() noexcept override { return session.writers_; }
    const codec::DecodeLimits& decode_limits() const noexcept override { return session.decode_limits(); }

    BaiduStdClientSession& session;
    std::uint32_t call = 0;
  };

  // transport::StreamSink
  MutableBytes receive_space() override;
  void received(std::size_t bytes) override;
  void sendable(std::size_t bytes) override;
  void ended(const Error& reason) override { end(reason); }
  void on_tick_end() override { send_queued(); }

  bool may_send(detail::CallOperation& operation);
  void send(detail::CallOperation& operation);
  void send_as(wire::CallId id, detail::CallOperation& operation, Time deadline);
  void send_compressed(RpcMeta& meta, const Metadata* fields, detail::CallOperation& operation, Bytes attachment);
  void refuse(detail::CallOperation& operation, ErrorCode code, std::string text);
  void commit(std::size_t bytes);
  void send_queued();
  void take_all();
  void on_frame(const ReceivedFrame& frame);
  void on_reply(detail::CallOperation& operation, const RpcMeta& meta, const ReceivedFrame& frame);
  static Error error_of_reply(const detail::CallOperation& operation, std::int32_t code, std::string_view text);
  Result<void> decode_reply(detail::CallOperation& operation, const RpcMeta& meta, const ReceivedFrame& frame);
  void protocol_error(std::string text);
  void check(const Result<void>& status);

  // Streams.
  Stream* stream_of(wire::CallId id) noexcept {
    return id.slot() < streams_.size() ? streams_[id.slot()].get() : nullptr;
  }
  // The stream of an open call. Null if there is none, or the connection has ended.
  Stream* open_stream(std::uint32_t call) noexcept;
  StreamSettings begin_stream(wire::CallId id, detail::CallOperation& operation);
  std::shared_ptr<detail::StreamCore> make_core(detail::StreamChannel& channel, std::uint32_t call);
  // Adds the further streams of a call to its `settings`.
  void begin_further(StreamSettings& settings, wire::CallId id, const Stream& first, rpc::FurtherStreams& operation);
  // The further streams of a call in the order in which they were made, whose first stream is `first`.
  std::vector<FurtherStream*> further_of(wire::CallId id, const Stream& first) const;
  // The reply to the call has opened its further streams.
  void open_further(const std::vector<FurtherStream*>& streams, const Stream& first, const StreamSettings& settings);
  void on_further_frame(FurtherStream& stream, const StreamFrameMeta& meta, const ReceivedFrame& frame);
  // Ends a further stream alone, and the call if this was its last stream.
  void end_further(FurtherStream& stream, const std::optional<Error>& error);
  void drop_further(wire::CallId id, const std::optional<Error>& error) noexcept;
  static std::pair<std::uint32_t, std::uint32_t> further_key(std::int64_t id) noexcept {
    return {static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32)};
  }
  bool has_further(wire::CallId id) const noexcept;
  // The reply to a call that has ended before opens several streams: resets them.
  void reset_late(const StreamFrameMeta& meta, const ReceivedFrame& frame);
  // Resets the further streams of a server, which this side does not use.
  void reset_extra(const StreamSettings& settings, std::int64_t from);
  std::string receive_limit() const;
  // The first stream of a call has ended. The call ends too, unless it has further streams that are open.
  void end_first(detail::CallOperation& operation, Stream& stream, std::optional<Error> error);
  void reset_at_peer(const Stream& stream) noexcept;
  std::byte* begin_item_of(Stream& stream, const codec::EncodedSize& size);
  void send_end_of(Stream& stream);
  void send_credit_of(Stream& stream, std::uint32_t bytes);
  void send_stream_frame(const StreamFrameMeta& meta);
  void close_call(wire::CallId id) noexcept;
  // Frees the call's slot and its stream. Notifies the peer if the stream has not ended there.
  void forget(wire::CallId id, const std::optional<Error>& error = std::nullopt) noexcept;
  void finish(detail::CallOperation& operation, std::optional<Error> error);
  void on_stream_frame(const ReceivedFrame& frame);
  void on_opening_frame(detail::CallOperation& operation, Stream& stream, const StreamFrameMeta& meta,
                        const ReceivedFrame& frame);
  void on_opened(detail::CallOperation& operation, Stream& stream, const RpcMeta& meta, const ReceivedFrame& frame);
  void on_stream_data(detail::CallOperation& operation, Stream& stream, const StreamFrameMeta& meta,
                      const ReceivedFrame& frame);

  // detail::StreamChannel
  Loop& stream_loop() noexcept override { return loop_; }
  std::byte* begin_item(std::uint32_t call, const codec::EncodedSize& size) override;
  void end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void send_end(std::uint32_t call) override;
  void send_credit(std::uint32_t call, std::uint32_t bytes) override;
  void copy_and_release_item(SendCompletion& owner) override { stream_.queue().copy_and_release(owner); }
  bool has_room() const noexcept override { return stream_.backlog() <= options_.client.send_backlog_bytes_max; }
  detail::WaitingWriter& writers() noexcept override { return writers_; }
  const codec::DecodeLimits& decode_limits() const noexcept override { return options_.client.decode_limits; }

  std::int64_t correlation_id(wire::CallId id) const noexcept {
    return static_cast<std::int64_t>(serials_[id.slot()]) << 32 | id.number();
  }

  Loop& loop_;
  const BaiduStdClientOptions options_;
  Owner& owner_;
  const std::size_t frame_bytes_max_;
  pipe::BufferedStream stream_;  // Closed once the connection has ended.
  FrameReceiver receiver_;
  pipe::ReceiveBlock block_;
  bool direct_ = false;
  bool taking_ = false;

  std::uint64_t committed_ = 0;  // Bytes queued so far.
  bool first_sent_ = false;      // A message has been sent, and the credential with it.

  wire::CallTable<detail::CallOperation> calls_;
  // A call's slot is free as soon as its caller has gone, because an answer may never come. The correlation_id has a
  // serial number, so that a late answer does not reach another call.
  std::vector<std::uint32_t> serials_;  // By slot.
  std::uint32_t serial_ = 0;
  Time last_used_;

  // The memory of stream items that have arrived and have not been read.
  detail::ReceiveBudget stream_budget_;
  detail::ReceiveAccount stream_account_;
  std::vector<std::unique_ptr<Stream>> streams_;  // By slot; null: the call has none.
  // By the two halves of the id: the number of the call, and a serial number. Few calls have any.
  using FurtherKey = std::pair<std::uint32_t, std::uint32_t>;
  using Further = std::map<FurtherKey, std::unique_ptr<FurtherStream>>;
  Further further_;
  // The ids of calls with several streams that ended before their reply came. More of them are not remembered.
  static constexpr std::size_t unopened_max = 4096;
  std::set<std::int64_t> unopened_;
  std::size_t item_head_bytes_ = 0;  // Reserved memory of the item between begin_item() and end_item().
  detail::WaitingWriter writers_;    // Writers that wait until the backlog is shorter.
};

}  // namespace hawser::protocol::baidu_std
