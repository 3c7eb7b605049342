#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/scope.h"
#include "hawser/stream.h"
#include "hawser/task.h"
#include "protocol/grpc/machine.h"
#include "protocol/grpc/message_writer.h"
#include "protocol/grpc/status.h"
#include "protocol/http2/early_flush.h"
#include "rpc/port/byte_session.h"
#include "rpc/port/http_streams.h"

namespace hawser::protocol::grpc {

// A server's connection that speaks gRPC. Finds the methods in the dispatcher whose bodies are protobuf messages.
// Requests that are not gRPC are given to the protocol that serves HTTP, if it is enabled.
class Http2ServerSession final : public rpc::ByteSession,
                                 MachineSink,
                                 public detail::StreamChannel,
                                 public CompressionChoice,
                                 rpc::HttpStreamHost {
 public:
  Http2ServerSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                     const GrpcOptions& options);
  ~Http2ServerSession() override;

  // ---- rpc::PortSession ----
  void go_away() override;
  void describe(rpc::ConnectionReport& report) const override {
    ByteSession::describe(report);
    report.details = machine_.describe();
  }

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
  // State of a call beside its HTTP/2 stream, by slot.
  struct Call {
    const rpc::Dispatcher::Method* method = nullptr;
    std::optional<Time> deadline;
    bool compress = false;
    rpc::HttpExchange* exchange = nullptr;  // The request, if it is not gRPC and has not been answered.
  };

  // ---- rpc::ByteSession ----
  std::size_t take(Bytes bytes, Block& block) override;
  bool receiving() const noexcept override;
  bool working() const noexcept override {
    return !unpacking_.empty() || !waiting_.empty() || (http_ != nullptr && http_->working());
  }
  void produce() override;
  void on_end(const Error& reason) override;
  void on_no_calls() override { close_if_done(); }

  // ---- MachineSink ----
  void on_headers(GrpcStream& stream) override;
  void on_message(GrpcStream& stream, Bytes message, Block* block) override;
  bool on_packed(std::uint32_t call, PackedMessage&& packed, detail::ReceiveCharge&& charge) override;
  void on_end(GrpcStream& stream) override;
  void on_bad(GrpcStream& stream, const Error& why) override;
  void on_closed(GrpcStream& stream, std::uint32_t http2_code) override;
  void on_sent(GrpcStream& stream, std::uint32_t credit) override;
  void on_goaway(std::int32_t, std::uint32_t, std::string_view) override {}
  void on_pong(bool of_goaway) override;

  std::size_t on_plain(GrpcStream& stream, Bytes bytes) override;

  // ---- rpc::HttpStreamHost ----
  detail::ReplySink& connection() noexcept override { return *this; }
  void options_changed() override;
  rpc::PortHost& port_host() noexcept override { return host(); }
  detail::ReceiveAccount& receive_account() noexcept override { return account(); }
  std::optional<Error> refusal(std::size_t beyond) const override;
  bool begins_later(std::uint32_t call) override;
  Error no_memory() override { return unkept_error(account()); }
  void run_method(const detail::ServedMethod& method, const detail::IncomingRequest& request) override {
    serve(method, request);
  }
  void run_json(const detail::ServedMethod& method, const detail::IncomingRequest& request,
                const rpc::JsonPointer& json) override {
    serve_json(method, request, json);
  }
  void run_route(const detail::ServedMethod& name, const detail::IncomingRequest& request, Route& route) override;
  void count_answer(std::uint32_t call, std::size_t bytes, ErrorCode code) noexcept override;
  void count_failure(std::uint32_t call, ErrorCode code, const Error& error) noexcept override;
  void send_continue(std::uint32_t call) override;
  void return_window(std::uint32_t call, std::size_t bytes) override;
  void restart_pace() noexcept override { message_received(); }
  void send_head(std::uint32_t call, unsigned status, std::span<const rpc::HttpField> fields, bool end) override;
  void send_body(std::uint32_t call, Buffer head, std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void end_response(std::uint32_t call, bool whole) override;
  bool stream_has_room(std::uint32_t call, std::size_t bytes_max) const noexcept override;
  bool connection_has_room() const noexcept override { return has_room(); }

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

  Task<void> unpack_later(std::uint32_t call, PackedMessage packed, detail::ReceiveCharge charge);
  // The memory of responses that wait within the machine, for set_waiting().
  std::size_t waiting_memory() const noexcept;
  // True if calls can't begin now because the client has not taken earlier responses.
  bool calls_wait() noexcept;
  // True if the call begins although calls_wait(). Then it is one of above_mark_.
  bool begins_above_mark(std::uint32_t call) noexcept;
  void begin_waiting(bool one_at_least = false) noexcept;
  void check_waiting() noexcept;
  void begin_call(GrpcStream& stream);
  Call& call_of(const GrpcStream& stream);
  void begin_plain(GrpcStream& stream);
  // False while the request of the stream does not wait for its client.
  bool plain_receives(const GrpcStream& stream) const noexcept;
  // `plain`: of the requests that are not gRPC.
  Duration write_timeout(bool plain) const noexcept;
  void start_pace(bool plain);
  void check_pace(bool plain);
  void start_discard_timer();
  void check_discards();
  // Nobody receives the response of the stream, which is busy.
  void give_up(GrpcStream& stream, std::string_view why);
  rpc::HttpExchange* exchange_of(const GrpcStream& stream) const noexcept;
  // The reason to refuse the request, or nothing.
  std::optional<Error> check_request(const GrpcStream& stream, const rpc::Dispatcher::Method*& method) const;
  void refuse(GrpcStream& stream, GrpcStatus status, std::string_view text);
  void dispatch(GrpcStream& stream);
  detail::StreamCore* core_of(const GrpcStream& stream) const noexcept;
  void send_begun(std::span<const ConstBuffer> pieces, SendCompletion* owner, std::uint32_t credit);
  void answered(GrpcStream& stream);
  void fail_machine(const Error& why);
  void close_if_done();
  void check_alive();
  void on_age();
  // The second step of GOAWAY.
  void complete_goaway();
  std::size_t calls_max() const noexcept;

  const GrpcOptions options_;
  detail::WaitingWriter writers_;
  std::vector<Call> calls_by_slot_;
  std::deque<std::uint32_t> waiting_;  // Calls that wait for calls_wait() to end, in order. Some have ended meanwhile.
  static constexpr std::size_t above_mark_calls_max = 8;
  std::array<std::uint32_t, above_mark_calls_max> above_mark_{};  // See begins_above_mark(). 0: none.
  std::size_t late_bytes_max_ = 0;    // Bound of what waits when wait_ begins a call; 0 until it has to.
  std::uint64_t taken_at_check_ = 0;  // Bytes that the client had taken when wait_ was started.
  // The message between begin_reply() or begin_item() and its end.
  GrpcStream* begun_ = nullptr;
  MessageWriter writer_;
  bool begun_is_message_ = true;

  bool going_away_ = false;
  bool goaway_sent_ = false;
  bool failed_ = false;
  bool age_over_ = false;
  MemberTimer<&Http2ServerSession::check_alive> keepalive_;
  MemberTimer<&Http2ServerSession::on_age> age_;
  // Runs while the client has not acknowledged the first step.
  MemberTimer<&Http2ServerSession::complete_goaway> goaway_timer_;
  // Check how fast the client takes the responses. The first runs while there are streams of gRPC and write_timeout is
  // not forever, the second likewise for requests that are not gRPC.
  MemberTimer<&Http2ServerSession::check_pace, false> calls_pace_;
  MemberTimer<&Http2ServerSession::check_pace, true> plain_pace_;
  // Runs while calls wait. Begins a request that waits although the client has taken nothing of the responses for a
  // while: it may be unable to take those before it has this one. They may add send_backlog_bytes_max bytes to the
  // responses that wait.
  MemberTimer<&Http2ServerSession::check_waiting> wait_;
  // Runs while requests that have been answered have not ended.
  MemberTimer<&Http2ServerSession::check_discards> discard_timer_;
  std::uint64_t arrived_ = 0;
  std::uint64_t arrived_at_check_ = 0;
  bool pinged_ = false;
  GrpcMachine machine_;  // Ends first: it notifies the owners of loans.
  http2::EarlyFlush early_;
  std::unique_ptr<rpc::HttpStreams> http_;  // Null until the first request that is not gRPC.
  std::vector<rpc::HttpField> plain_fields_;
  // Stops the work of unpacking_ that no thread has begun. Made when there is some.
  std::stop_source unpacking_stop_ = std::stop_source(std::nostopstate);
  Scope unpacking_;  // Its tasks wait for messages that are decompressed on another thread. Ends first of all.
};

}  // namespace hawser::protocol::grpc
