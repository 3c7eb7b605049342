#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hawser/brpc.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/stream.h"
#include "protocol/baidu_std/frame_receiver.h"
#include "protocol/baidu_std/rpc_meta.h"
#include "rpc/client/protocol_client.h"
#include "transport/common/send_queue.h"
#include "wire/call_table.h"

namespace hawser::prpc {

// The client's end of one connection: its calls in flight. Loop's thread only.
class ClientSession final : public rpc::ProtocolSession,
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
  Result<void> decode_reply(detail::CallOperation& operation, const RpcMeta& meta, const ReceivedFrame& frame);
  void protocol_error(std::string text);
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
};

}  // namespace hawser::prpc
