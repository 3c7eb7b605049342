#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/stream.h"
#include "protocol/grpc/goaway_steps.h"
#include "protocol/grpc/http_requests.h"
#include "protocol/grpc/machine.h"
#include "protocol/grpc/message_writer.h"
#include "protocol/grpc/packed_items.h"
#include "protocol/grpc/status.h"
#include "protocol/grpc/waiting_calls.h"
#include "protocol/http2/early_flush.h"
#include "protocol/http2/keep_alive.h"
#include "rpc/port/byte_session.h"

namespace hawser::protocol::grpc {

// A server's connection that speaks gRPC. Finds the methods in the dispatcher whose bodies are protobuf messages.
// Requests that are not gRPC are given to the protocol that serves HTTP, if it is enabled.
class Http2ServerSession final : public rpc::ByteSession,
                                 MachineSink,
                                 http2::KeepAlive::Connection,
                                 public detail::StreamChannel,
                                 public CompressionChoice {
 public:
  Http2ServerSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                     const GrpcOptions& options);
  ~Http2ServerSession() override;

  // ---- rpc::PortSession ----
  void go_away() override { goaway_.announce(); }
  bool leave() override;
  void describe(rpc::ConnectionReport& report) const override {
    ByteSession::describe(report);
    report.details = machine_.describe();
  }

  // ---- rpc::BodyFormEvents ----
  void handler_begun(std::uint32_t call) override;

  // ---- detail::ReplySink ----
  std::string_view protocol() const noexcept override { return "grpc"; }
  std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                         const detail::ReplyExtras& extras) override;
  void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void reply_error(std::uint32_t call, const Error& error) override;
  void copy_and_release(SendCompletion& owner) override { machine_.copy_and_release(owner); }
  std::shared_ptr<detail::StreamCore> open_stream(std::uint32_t call) override;

  // For hawser/grpc.h.
  bool add_metadata(std::uint32_t call, bool initial, std::string name, std::string value);
  bool choose_compression(std::uint32_t call, Encoding encoding) override;
  bool request_compressed(std::uint32_t call) const noexcept;

 private:
  friend class HttpRequests;
  friend class GoawaySteps;
  friend class PackedItems;

  // State of a call beside its HTTP/2 stream, by slot.
  struct Call {
    const rpc::Dispatcher::Method* method = nullptr;
    std::optional<Time> deadline;
    bool compress = false;
    bool handler_runs = false;  // Behind interceptors: handler_begun() was called.
  };

  // ---- rpc::ByteSession ----
  std::size_t take(Bytes bytes, Block& block) override;
  bool receiving() const noexcept override;
  bool working() const noexcept override { return !packed_.idle() || !waiting_.empty() || plain_.working(); }
  void produce() override;
  // A proxy or a script may end its direction behind its last request. A client that has gone does not send a reset by
  // itself: see on_peer_end().
  Duration half_closed_max() const noexcept override { return std::chrono::seconds(5); }
  bool replies_due() const noexcept override { return machine_.used_streams() != 0; }
  void on_peer_end() override;
  void on_end(const Error& reason) override;
  void on_no_calls() override { close_if_done(); }
  void options_changed() override;

  // ---- MachineSink ----
  void on_headers(GrpcStream& stream) override;
  void on_message(GrpcStream& stream, Bytes message, Block* block) override;
  bool may_unpack(const GrpcStream& stream) const noexcept override;
  bool on_packed(std::uint32_t call, PackedMessage&& packed, detail::ReceiveCharge&& charge) override;
  bool waits_for_memory(std::uint32_t) override { return packed_.waits_for_memory(); }
  void on_end(GrpcStream& stream) override;
  void on_bad(GrpcStream& stream, const Error& why) override;
  void on_closed(GrpcStream& stream, std::uint32_t http2_code) override;
  void on_sent(GrpcStream& stream, std::uint32_t credit) override;
  void on_goaway(std::int32_t, std::uint32_t, std::string_view) override {}
  void on_pong(bool of_goaway) override;
  std::size_t on_plain(GrpcStream& stream, Bytes bytes) override { return plain_.on_body(stream, bytes); }

  // ---- detail::StreamChannel ----
  Loop& stream_loop() noexcept override { return host().loop; }
  std::byte* begin_item(std::uint32_t call, const codec::EncodedSize& size) override;
  void end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void send_end(std::uint32_t) override {}  // The status ends the stream.
  void send_credit(std::uint32_t call, std::uint32_t bytes) override;
  void copy_and_release_item(SendCompletion& owner) override { machine_.copy_and_release(owner); }
  bool has_room() const noexcept override;
  detail::WaitingWriter& writers() noexcept override { return writers_; }
  const codec::DecodeLimits& decode_limits() const noexcept override { return host().options.decode_limits; }

  // ---- http2::KeepAlive::Connection ----
  bool expects_bytes() const noexcept override { return !finishing() && !peer_ended(); }
  void send_ping() override;
  void on_silent_peer() override;

  // The memory of responses that wait within the machine, for set_waiting().
  std::size_t waiting_memory() const noexcept;
  // True if calls can't begin now because the client has not taken earlier responses.
  bool calls_wait() noexcept;
  // True if the call, which has come whole, must wait until the client has taken earlier responses.
  bool begins_later(std::uint32_t call);
  bool begins_above_mark(std::uint32_t call);
  ClientBacklog client_backlog() const noexcept;
  // Bytes of responses that the client has taken.
  std::uint64_t taken_bytes() const noexcept { return sent_bytes() + machine_.data_sent(); }
  void begin_waiting(bool one_at_least = false) noexcept;
  void start_wait();
  void check_waiting() noexcept;
  void begin_call(GrpcStream& stream);
  Call& call_of(const GrpcStream& stream);
  // Starts a timer that checks the pace, unless `write_timeout` is forever.
  void start_pace(Timer& timer, Duration write_timeout);
  // Gives up streams whose client has taken too little since the last check. Returns true if there are others. `plain`:
  // those that are not gRPC.
  bool check_pace(bool plain, Duration write_timeout);
  void check_calls_pace();
  // Nobody receives the response of the stream, which is busy.
  void give_up(GrpcStream& stream, std::string_view why);
  // The reason for which the call of a request that was accepted may not begin, or nothing. `beyond`: so many calls
  // more than ServerOptions::calls_max may be in flight.
  std::optional<Error> refusal(std::size_t beyond) const;
  // The reason to refuse the request, or nothing.
  std::optional<Error> check_request(const GrpcStream& stream, const rpc::Dispatcher::Method*& method) const;
  void refuse(GrpcStream& stream, GrpcStatus status, std::string_view text);
  void dispatch(GrpcStream& stream);
  detail::StreamCore* core_of(const GrpcStream& stream) const noexcept;
  void send_begun(std::span<const ConstBuffer> pieces, SendCompletion* owner, std::uint32_t credit);
  void answered(GrpcStream& stream);
  void fail_machine(const Error& why);
  void close_if_done();
  std::size_t calls_max() const noexcept;

  const GrpcOptions options_;
  detail::WaitingWriter writers_;
  std::vector<Call> calls_by_slot_;
  WaitingCalls waiting_;
  MessageWriter writer_;  // Holds the message between begin_reply() or begin_item() and its end.
  bool begun_is_message_ = true;

  bool failed_ = false;
  http2::KeepAlive keepalive_;
  GoawaySteps goaway_;
  // Checks how fast the client takes the responses. Runs while there are streams of gRPC and write_timeout is not
  // forever.
  MemberTimer<&Http2ServerSession::check_calls_pace> calls_pace_;
  MemberTimer<&Http2ServerSession::check_waiting> wait_;  // Runs while calls wait.
  GrpcMachine machine_;                                   // Ends first: it notifies the owners of loans.
  http2::EarlyFlush early_;
  HttpRequests plain_;
  PackedItems packed_;  // Ends first of all.
};

}  // namespace hawser::protocol::grpc
