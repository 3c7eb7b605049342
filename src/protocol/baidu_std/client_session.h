#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/brpc.h"
#include "hawser/detail/receive_account.h"
#include "hawser/detail/stream_core.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/stream.h"
#include "protocol/baidu_std/frame_receiver.h"
#include "protocol/baidu_std/rpc_meta.h"
#include "protocol/baidu_std/stream_end.h"
#include "rpc/client/protocol_client.h"
#include "transport/common/send_queue.h"
#include "wire/call_table.h"

namespace hawser::prpc {

// The client's end of one connection: its calls in flight. Loop's thread only.
class ClientSession final : public rpc::ProtocolSession,
                            public detail::StreamChannel,
                            transport::StreamSink,
                            exec::TickEnd,
                            public std::enable_shared_from_this<ClientSession> {
 public:
  static constexpr std::size_t receive_block_bytes = 64 * 1024;
  static constexpr std::size_t early_flush_bytes = 32 * 1024;

  // `options` and `owner` outlive the connection's end.
  ClientSession(Loop& loop, std::unique_ptr<transport::Stream> stream, const BaiduStdClientOptions& options,
                Owner& owner);
  ~ClientSession() override;

  // ---- rpc::ProtocolSession ----
  void begin() override;
  void end(const Error& reason) override;
  std::size_t calls_in_flight() const noexcept override { return calls_.size(); }

  // ---- detail::CallChannel ----
  Loop& loop() noexcept override { return loop_; }
  void start(detail::CallOperation& operation) override;
  void abandon(detail::CallOperation& operation) noexcept override;
  void copy_and_release(SendCompletion& owner) override { sending_.copy_and_release(owner); }
  std::weak_ptr<detail::CallChannel> weak() noexcept override { return weak_from_this(); }
  void cancel(std::uint32_t call, const Error& error) override;

 private:
  struct Stream : StreamEnd {
    bool peer_reads = false;  // Known once the stream is open.
    bool end_wanted = false;  // The caller has ended its items before the stream was open.
    bool close_sent = false;  // The caller writes no more, and the server has been notified.
  };

  struct Closing final : detail::Posted {
    void run() override { stream.reset(); }
    std::unique_ptr<transport::Stream> stream;
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
  void make_room();
  void drop_block() noexcept;
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
  void send_stream_frame(const StreamFrameMeta& meta);
  // Frees the call's slot and its stream. Notifies the peer if the stream has not ended there.
  void forget(wire::CallId id) noexcept;
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
  void copy_and_release_item(SendCompletion& owner) override { sending_.copy_and_release(owner); }
  bool has_room() const noexcept override { return sending_.bytes() <= options_.client.send_backlog_bytes_max; }
  detail::WaitingWriter& writers() noexcept override { return writers_; }
  const codec::DecodeLimits& decode_limits() const noexcept override { return options_.client.decode_limits; }

  std::int64_t correlation_id(wire::CallId id) const noexcept {
    return static_cast<std::int64_t>(serials_[id.slot()]) << 32 | id.number();
  }

  Loop& loop_;
  const BaiduStdClientOptions& options_;
  Owner& owner_;
  const std::size_t frame_bytes_max_;
  std::unique_ptr<transport::Stream> stream_;  // Null once the connection has ended.
  std::unique_ptr<Closing> closing_;
  FrameReceiver receiver_;
  Block* block_ = nullptr;  // Its bytes [begin_, end_) are received and not taken yet.
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool direct_ = false;
  bool taking_ = false;

  transport::SendQueue sending_;
  bool blocked_ = false;
  bool sending_now_ = false;
  std::uint64_t committed_ = 0;
  std::uint64_t sent_ = 0;
  bool first_sent_ = false;  // A message has been sent, and the credential with it.

  wire::CallTable<detail::CallOperation> calls_;
  // A call's slot is free as soon as its caller has gone, because an answer may never come. The correlation_id has a
  // serial number, so that a late answer does not reach another call.
  std::vector<std::uint32_t> serials_;  // By slot.
  std::uint32_t serial_ = 0;

  // The memory of stream items that have arrived and have not been read.
  detail::ReceiveBudget stream_budget_;
  detail::ReceiveAccount stream_account_;
  std::vector<std::unique_ptr<Stream>> streams_;  // By slot; null: the call has none.
  std::size_t item_head_bytes_ = 0;               // Reserved memory of the item between begin_item() and end_item().
  detail::WaitingWriter writers_;                 // Writers that wait until the backlog is shorter.
};

}  // namespace hawser::prpc
