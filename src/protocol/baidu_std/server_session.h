#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/lines_per_second.h"
#include "hawser/brpc.h"
#include "hawser/detail/json_transcoder.h"
#include "hawser/detail/stream_core.h"
#include "hawser/scope.h"
#include "hawser/task.h"
#include "protocol/baidu_std/compression.h"
#include "protocol/baidu_std/frame.h"
#include "protocol/baidu_std/frame_receiver.h"
#include "protocol/baidu_std/rpc_meta.h"
#include "protocol/baidu_std/stream_end.h"
#include "rpc/port/byte_session.h"
#include "rpc/port/call_states.h"
#include "rpc/port/stream_acceptor.h"

namespace hawser::protocol::baidu_std {

// The properties of a request that its answer needs.
struct ServerCall {
  std::int64_t correlation_id = 0;
  Compression compression = Compression::none;              // The request's.
  ContentType content = ContentType::proto;                 // The request's, thus the reply's.
  std::shared_ptr<const detail::JsonTranscoder> json = {};  // Non-null if the content is JSON.
  bool checksum = false;                                    // The request had one, so the reply gets one.
  bool checksum_with_attachment = false;
  std::unique_ptr<StreamEnd> stream;  // Non-null if the request opened a stream.
  // The further streams of a call, each with a state of its own: first the ids that the caller has offered.
  std::vector<std::int64_t> offered = {};
  std::vector<std::uint32_t> further = {};
  std::uint32_t stream_of = 0;  // Not a call, but a further stream of that one.
};

// The log lines about refused credentials, of all connections of a server. Clients connect as fast as they like.
struct RefusalLines {
  static constexpr std::uint32_t per_second_max = 20;
  LinesPerSecond lines;
  std::atomic<std::uint64_t> omitted{0};
};

// A connection of a client that speaks baidu_std.
class BaiduStdServerSession final : public rpc::ByteSession, public rpc::StreamAcceptor, detail::StreamChannel {
 public:
  BaiduStdServerSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                        std::shared_ptr<const BaiduStdOptions> options, std::shared_ptr<RefusalLines> refusal_lines);
  ~BaiduStdServerSession() override;

  // rpc::PortSession
  void go_away() override;
  unsigned silent_checks() noexcept override;
  // While a long body is converted, no further frame of the connection is taken.
  void conversion_begins() override { begin_conversion(); }
  void conversion_ended() noexcept override;
  void handler_begun(std::uint32_t call) override;

  // detail::ReplySink
  std::string_view protocol() const noexcept override { return "baidu_std"; }
  std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                         const detail::ReplyExtras& extras) override;
  void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void reply_error(std::uint32_t call, const Error& error) override;
  std::shared_ptr<detail::StreamCore> open_stream(std::uint32_t call) override;

  // rpc::StreamAcceptor
  std::size_t streams_offered(std::uint32_t call) noexcept override;
  Cores accept_streams(std::uint32_t call, Bytes body, const detail::ReplyExtras& extras, bool incoming) override;
  void close_stream(const detail::StreamCore& core) override;

 private:
  // The reply between begin_reply() and end_reply().
  struct PendingReply {
    std::uint32_t call = 0;
    std::size_t head_bytes = 0;  // Reserved memory, with the body.
    std::byte* body = nullptr;   // The body there.
    std::size_t body_bytes = 0;
    std::size_t payload_bytes = 0;
    std::size_t attachment_bytes = 0;
    std::byte* checksum = nullptr;  // Place for the checksum; null: none.
    Buffer plain;                   // The body, if it is converted or compressed before it is sent.
    Metadata metadata;              // A copy, if `plain` is used.
    bool closes_stream = false;
    bool opens_stream = false;  // accept_streams(): the call goes on.
  };

  // rpc::ByteSession
  std::size_t take(Bytes bytes, Block& block) override;
  MutableBytes direct_space() override { return receiver_.direct_space(); }
  void direct_received(std::size_t bytes) override;
  bool receiving() const noexcept override { return receiver_.receiving(); }
  void on_drained() override;
  void on_no_calls() override { finish_if_refusing(); }
  void on_end(const Error& reason) override;

  // Ends the connection if requests were refused for long enough and nothing more is due.
  void finish_if_refusing();

  // Requests.
  void on_frame(const ReceivedFrame& frame);
  void on_request(const RpcMeta& meta, const ReceivedFrame& frame);
  // Adds the call and runs its handler. Of `meta`, no view is used.
  void begin_call(const RpcMeta& meta, const rpc::Dispatcher::Method& method, detail::IncomingRequest request);
  // Verifies the credential of the first message. Returns false if the message must not be processed now or at all.
  bool authenticate(const RpcMeta& meta, const ReceivedFrame& frame);
  // Waits for BaiduStdOptions::authenticate, and processes the first message then. Meanwhile no further frame is taken.
  Task<void> authenticate_later(Buffer meta, Buffer data, bool discarded);
  void refuse_credential(const RpcMeta& meta, const Error& why);
  const rpc::Dispatcher::Method* find_method(const RequestMeta& request);
  void refuse(const RpcMeta& meta, std::int32_t code, std::string_view text);
  void send_error(std::int64_t correlation_id, const std::optional<std::int64_t>& stream, std::int32_t code,
                  std::string_view text);
  void finish_call(std::uint32_t call) noexcept;
  // Writes the bytes before a reply's data and returns their end; `after` is the number of bytes of the data, `room`
  // the part of them that is reserved behind. Sets the members of pending_ that name places.
  std::byte* begin_response(const ServerCall& call, const RpcMeta& meta, const Metadata* metadata, std::size_t room,
                            std::size_t after);
  // Both return false if they have refused the call.
  bool send_converted(std::span<const ConstBuffer> pieces, SendCompletion* owner);
  bool send_body(const ServerCall& call, const PendingReply& reply, Buffer body, Bytes attachment);

  // Conversions of long bodies, and authentication. They end early if the connection does.
  void begin_conversion();
  void end_conversion();
  Task<void> convert_result(PendingReply reply, Buffer body, Buffer rest);

  // Streams.
  // The id of a call's stream on this side. It is never 0.
  static std::int64_t own_id(std::uint32_t call) noexcept { return std::int64_t{call} + 1; }
  void on_stream_frame(const ReceivedFrame& frame);
  // Ends the connection if `status` is an error.
  void check(const Result<void>& status);
  void on_stream_data(std::uint32_t number, StreamEnd& stream, const StreamFrameMeta& meta, const ReceivedFrame& frame);
  void on_stream_closed(std::uint32_t number, StreamEnd& stream, bool reset);
  // Returns the settings for the reply that opens the streams of the call.
  static StreamSettings settings_of(const ServerCall& call);
  void send_opening_reply(ServerCall& call);
  void open_waiting_stream(std::uint32_t number);
  // Removes the further streams of a call that has ended. Resets those that are open.
  void drop_further(ServerCall& call) noexcept;
  void send_stream_frame(const StreamFrameMeta& meta);
  void reset_stream(std::uint32_t number, StreamEnd& stream, const Error& why);
  detail::ActiveCall* active(std::uint32_t number) const noexcept;

  // detail::StreamChannel
  Loop& stream_loop() noexcept override { return loop(); }
  std::byte* begin_item(std::uint32_t call, const codec::EncodedSize& size) override;
  void end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void send_end(std::uint32_t call) override;
  void send_credit(std::uint32_t call, std::uint32_t bytes) override;
  void copy_and_release_item(SendCompletion& owner) override { copy_and_release(owner); }
  bool has_room() const noexcept override { return ByteSession::has_room(); }
  detail::WaitingWriter& writers() noexcept override { return writers_; }
  const codec::DecodeLimits& decode_limits() const noexcept override { return host().options.decode_limits; }

  const std::shared_ptr<const BaiduStdOptions> options_;
  const std::shared_ptr<RefusalLines> refusal_lines_;
  const std::size_t frame_bytes_max_;  // Limit of received and sent frames.
  FrameReceiver receiver_;
  rpc::CallStates<ServerCall> states_;
  const rpc::Dispatcher::Method* last_method_ = nullptr;  // Most clients call one method again and again.
  bool authenticated_ = false;
  unsigned refusing_checks_ = 0;  // Calls of silent_checks().
  PendingReply pending_;
  std::size_t item_head_bytes_ = 0;  // Reserved memory of the item between begin_item() and end_item().
  detail::WaitingWriter writers_;    // Writers that wait until the backlog is shorter.
  std::size_t converting_ = 0;       // Conversions on other threads, and authentication.
  std::stop_source conversion_stop_ = std::stop_source(std::nostopstate);
  Scope conversions_;
};

}  // namespace hawser::protocol::baidu_std
