#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/grpc_client.h"
#include "hawser/task.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/stream.h"
#include "pipe/buffered_stream.h"
#include "pipe/receive_block.h"
#include "protocol/grpc/machine.h"
#include "protocol/grpc/message_writer.h"
#include "protocol/grpc/stream_calls.h"
#include "protocol/grpc/unpacker.h"
#include "protocol/http2/early_flush.h"
#include "protocol/http2/keep_alive.h"
#include "rpc/client/client_protocol.h"

namespace hawser::protocol::grpc {

// A client's connection that speaks gRPC, with its calls in flight. Loop's thread only.
class GrpcClientSession final : public rpc::ProtocolSession,
                                public detail::StreamChannel,
                                public CompressionChoice,
                                public std::enable_shared_from_this<GrpcClientSession>,
                                MachineSink,
                                http2::KeepAlive::Connection,
                                transport::StreamSink,
                                exec::TickEnd {
 public:
  GrpcClientSession(Loop& loop, std::unique_ptr<transport::Stream> stream, GrpcClientOptions options,
                    std::string authority, Owner& owner);
  ~GrpcClientSession() override;

  // ---- rpc::ProtocolSession ----
  void begin() override;
  void end(const Error& reason) override;
  std::size_t calls_in_flight() const noexcept override { return calls_.size(); }
  std::size_t free_places() const noexcept override {
    return options_.calls_in_flight_max - std::min(machine_.used_streams(), options_.calls_in_flight_max);
  }
  Time last_used() const noexcept override { return last_used_; }
  bool going_away() const noexcept override { return going_away_; }
  std::string_view transport_name() const noexcept override { return stream_->transport(); }

  // ---- detail::CallChannel ----
  Loop& loop() noexcept override { return loop_; }
  void start(detail::CallOperation& operation) override;
  void abandon(detail::CallOperation& operation) noexcept override;
  void copy_and_release(SendCompletion& owner) override { machine_.copy_and_release(owner); }
  std::weak_ptr<detail::CallChannel> weak() noexcept override { return weak_from_this(); }
  void cancel(std::uint32_t call, const Error& error) override;
  bool choose_compression(std::uint32_t call, Encoding encoding) override;

 private:
  // ---- transport::StreamSink ----
  MutableBytes receive_space() override;
  void received(std::size_t bytes) override;
  void sendable(std::size_t bytes) override;
  void broken(const Error& reason) override { end(reason); }
  void ended(const Error& reason) override { end(reason); }
  void on_tick_end() override { flush(); }

  // ---- MachineSink ----
  void on_headers(GrpcStream& stream) override;
  void on_message(GrpcStream& stream, Bytes message, Block* block) override;
  bool on_packed(std::uint32_t call, PackedMessage&& packed, detail::ReceiveCharge&& charge) override;
  void on_end(GrpcStream& stream) override;
  void on_bad(GrpcStream& stream, const Error& why) override;
  void on_closed(GrpcStream& stream, std::uint32_t http2_code) override;
  void on_sent(GrpcStream& stream, std::uint32_t credit) override;
  void on_goaway(std::int32_t last, std::uint32_t http2_code, std::string_view text) override;
  void on_pong(bool) override {}

  // ---- detail::StreamChannel ----
  Loop& stream_loop() noexcept override { return loop_; }
  std::byte* begin_item(std::uint32_t call, const codec::EncodedSize& size) override;
  void end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void send_end(std::uint32_t call) override;
  void send_credit(std::uint32_t call, std::uint32_t bytes) override;
  void copy_and_release_item(SendCompletion& owner) override { machine_.copy_and_release(owner); }
  bool has_room() const noexcept override;
  detail::WaitingWriter& writers() noexcept override { return writers_; }
  const codec::DecodeLimits& decode_limits() const noexcept override { return options_.decode_limits; }

  // ---- http2::KeepAlive::Connection ----
  bool expects_bytes() const noexcept override { return calls_.size() != 0; }
  void send_ping() override;
  void on_silent_peer() override;

  struct Delivery;
  Task<void> unpack_later(std::unique_ptr<Delivery> delivery, PackedMessage packed);
  bool may_send(detail::CallOperation& operation);
  bool may_begin(const detail::CallOperation::Request& request) const noexcept;
  GrpcStream* open(const detail::CallOperation::Request& request, Time deadline);
  void send(detail::CallOperation& operation);
  // Removes the call of the stream, which the session does not use any more.
  void forget(GrpcStream& stream) noexcept;
  void finish(GrpcStream& stream, std::optional<Error> error);
  void succeed(GrpcStream& stream);
  static void report(const GrpcStream& stream, CallOutcome& outcome);
  // The compression of a message of `bytes` bytes.
  Encoding encoding_for(const GrpcStream& stream, std::size_t bytes) const noexcept;
  void send_soon() {
    if (!stream_.closed() && !queued()) loop_.at_tick_end(*this);
  }
  void flush();

  Loop& loop_;
  const GrpcClientOptions options_;
  const std::string authority_;
  Owner& owner_;
  pipe::BufferedStream stream_;  // Closed once the connection has ended.
  http2::EarlyFlush early_;
  pipe::ReceiveBlock block_;
  detail::WaitingWriter writers_;
  StreamCalls calls_;
  bool going_away_ = false;
  bool full_ = false;  // There was no free place after a request. Until there is one again.
  Time last_used_;
  http2::KeepAlive keepalive_;
  MessageWriter writer_;
  GrpcMachine machine_;  // Ends first: it notifies the owners of loans.
  Unpacker unpacker_;    // Ends first of all.
};

}  // namespace hawser::protocol::grpc
