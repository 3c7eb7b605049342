#include "rpc/client/client_session.h"

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "hawser/detail/const_buffers.h"
#include "hawser/detail/loop_access.h"

namespace hawser::rpc {

using detail::CallOperation;
using wire::CallId;
using Calls = wire::CallTable<CallOperation>;

ClientSession::ClientSession(Loop& loop, std::unique_ptr<transport::Connection> connection,
                             const SessionSettings& settings, Duration call_timeout, Owner& owner)
    : Session(loop, std::move(connection), settings),
      owner_(owner),
      call_timeout_(call_timeout),
      deadlines_(loop, call_timeout),
      calls_(settings.agreed.calls_max),
      last_used_(loop.now()),
      ponged_(loop) {}

Time call_deadline(Loop& loop, const CallOperation::Request& request, Duration call_timeout) noexcept {
  // A longer timeout counts as none. The limit is far enough from the end of time that adding it to a clock is safe.
  constexpr Duration timeout_max = std::chrono::hours(24 * 365 * 10);
  const CallOptions* const options = request.options;
  const Duration unset = request.streams ? forever : call_timeout;
  const Duration timeout = options != nullptr && options->timeout ? *options->timeout : unset;
  return timeout > timeout_max ? Time::max() : loop.now() + timeout;
}

Error ended_call(bool unsent, const Error& reason) {
  return Error::of_connection(reason.initiator, unsent ? ErrorCode::not_sent : ErrorCode::outcome_unknown,
                              (unsent ? "the connection ended before the request was sent: "
                                      : "the connection ended before the reply; the call may have been executed: ") +
                                  reason.text);
}

// ---- Requests ----

void ClientSession::refuse(CallOperation& operation, ErrorCode code, std::string text) {
  operation.complete(loop(), Error::of_call(code, std::move(text)));
}

// The reason why a call does not begin, if there is one. Apart from may_send(), whose registers it would take up.
[[gnu::cold, gnu::noinline]] void ClientSession::refuse_start(CallOperation& operation) {
  Loop* const here = Loop::current();
  if (here != &loop() && here != nullptr) {
    refuse(operation, ErrorCode::invalid_argument,
           "this client is connected on another loop than the one that runs here: use it on the loop, and the thread, "
           "that "
           "it was connected on, or use another Client here");
  } else if (closed()) {
    refuse(operation, ErrorCode::not_sent, "the connection has ended");
  } else if (going_away_) {
    refuse(operation, ErrorCode::unavailable, "the server is stopping and takes no new calls");
  } else if (operation.request().size.too_large) {
    const codec::EncodedSize& size = operation.request().size;
    refuse(operation, size.code, std::string("the arguments can't be encoded: ") + size.why_not);
  } else if (calls_.full()) {
    refuse(operation, ErrorCode::overloaded,
           "the connection has " + count_text(calls_.calls_max(), "call") +
               " in flight already: wait for replies, open more connections, or raise "
               "calls_in_flight_max here and calls_per_connection_max at the server");
  } else {
    refuse(operation, ErrorCode::overloaded,
           "send_backlog_bytes_max bytes of requests wait to be sent: the server or the network is slower than the "
           "calls");
  }
}

inline bool ClientSession::may_send(CallOperation& operation) {
  Loop* const here = Loop::current();
  if (here == nullptr) detail::LoopAccess::check_thread(loop());
  if ((here == &loop() || here == nullptr) && !closed() && !going_away_ && !operation.request().size.too_large &&
      !calls_.full() && has_room()) [[likely]] {
    return true;
  }
  refuse_start(operation);
  return false;
}

[[gnu::always_inline]] inline void ClientSession::send_as(CallId id, CallOperation& operation, Time deadline) {
  const CallOperation::Request& request = operation.request();
  const CallOptions* const options = request.options;
  const Bytes attachment = options != nullptr ? options->attachment : Bytes();
  std::byte* const body = begin_frame(
      wire::RequestFrame{
          .call = id,
          .method = request.method,
          .signature = request.signature,
          .deadline = deadline == Time::max()
                          ? 0
                          : wire::encode_deadline(std::max<Duration>(deadline - loop().now(), {}).count() / 1000),
          .attachment_bytes = static_cast<std::uint32_t>(attachment.size()),
          .idempotent = options != nullptr && options->idempotent},
      request.size.body, request.size.payload + attachment.size(), options != nullptr ? &options->metadata : nullptr);
  if (body == nullptr) [[unlikely]] {
    calls_.close(id);
    return operation.complete(loop(), begin_error());
  }
  const Time now = session_loop().now();
  last_used_ = now;
  const bool common = deadline != Time::max() && deadline - now == call_timeout_;
  operation.begin(*this, id.number(), deadline, common ? &deadlines_ : nullptr);
  if (request.streams) {
    operation.set_stream(std::make_shared<detail::StreamCore>(*this, id.number(), settings().agreed.peer_window_bytes,
                                                              settings().agreed.own_window_bytes));
  }
  if (request.size.pieces == 0 && attachment.empty()) [[likely]] {
    operation.encode(body, nullptr);
    end_frame();
  } else {
    detail::ConstBuffers pieces(request.size.pieces);
    operation.encode(body, pieces.data());
    if (!attachment.empty()) pieces.push({attachment.data(), attachment.size()});
    operation.loan();
    end_frame(pieces.span(), &operation);
  }
  operation.sent_mark = connection().committed();
}

[[gnu::always_inline]] inline void ClientSession::send(CallOperation& operation, Time deadline) {
  std::optional<CallId> id;
  try {
    id = calls_.open(operation);
    send_as(*id, operation, deadline);
  } catch (const std::bad_alloc&) {
    // Nothing was sent. The table must not keep the operation, because its caller may destroy it.
    if (id) calls_.close(*id);
    refuse(operation, ErrorCode::internal, "out of memory while the request was encoded; it was not sent");
  }
}

void ClientSession::start(CallOperation& operation) {
  if (may_send(operation)) send(operation, call_deadline(loop(), operation.request(), call_timeout_));
}

void ClientSession::restart(CallOperation& operation) {
  if (closed()) return refuse(operation, ErrorCode::not_sent, "the connection has ended");
  operation.measure();  // The arguments may have changed since the request was first sent.
  if (may_send(operation)) send(operation, operation.deadline());
}

void ClientSession::abandon(CallOperation& operation) noexcept {
  detail::LoopAccess::check_thread(loop());
  if (operation.receive_buffer != nullptr) connection().revoke_receive_buffer(operation.receive_buffer);
  const CallId id = CallId::from_number(operation.id());
  calls_.abandon(id);
  if (!closed()) send_bare(wire::CancelFrame{.call = id});
}

void ClientSession::cancel(std::uint32_t call, const Error& error) {
  const Calls::Found found = calls_.find(CallId::from_number(call));
  if (found.state != Calls::State::open) return;
  abandon(*found.call);
  if (detail::StreamCore* stream = found.call->stream()) stream->on_closed(error);
  found.call->complete(loop(), error);
}

// ---- Replies ----

// Returns the call of that id and frees its slot. Null if no caller waits for the call.
[[gnu::always_inline]] inline CallOperation* ClientSession::close_call(CallId call, wire::FrameKind answer) {
  const Calls::Found found = calls_.find(call);
  if (found.state == Calls::State::unknown) [[unlikely]] {
    protocol_error(std::string(to_string(answer)) + " for a call (" + to_string(call) + ") which is not in flight");
    return nullptr;
  }
  const bool was_full = calls_.full();
  calls_.close(call);
  last_used_ = loop().now();
  if (was_full) [[unlikely]]
    owner_.on_place();
  if (finishing_ && calls_.size() == 0) [[unlikely]]
    finish();
  return found.call;
}

[[gnu::always_inline]] inline void ClientSession::on_response(const wire::ResponseFrame& response,
                                                              const wire::Frame& frame,
                                                              const transport::Message& message) {
  CallOperation* const operation = close_call(response.call, response.kind);
  if (operation == nullptr) return;
  operation->receive_buffer = nullptr;
  if (detail::StreamCore* stream = operation->stream()) stream->on_closed(std::nullopt);
  if (message.discarded) {
    return operation->complete(loop(), Error::of_call(ErrorCode::limit_exceeded,
                                                      "the reply's payload is larger than the memory given to into()"));
  }
  const detail::Received received{.body = frame.body,
                                  .payload = frame.payload,
                                  .attachment = frame.attachment,
                                  .metadata = MetadataView(frame.metadata),
                                  .head_block = message.head_block,
                                  .payload_block = message.payload_block,
                                  .decode_limits = &settings().decode_limits};
  operation->decode(received);
  operation->complete(loop());
}

void ClientSession::on_frame(const wire::Frame& frame, const transport::Message& message) {
  wire::visit(frame, wire::Visitor{
                         [&](const wire::ResponseFrame& response) { on_response(response, frame, message); },
                         [&](const wire::ErrorFrame& error) { on_error(error, as_text(frame.body)); },
                         [&](const wire::GoawayFrame&) { on_goaway(); },
                         [&](const wire::MemoryFrame& part) { on_memory_frame(part, frame, message); },
                         [&](const wire::MemoryReplyFrame& part) { on_memory_frame(part, frame, message); },
                         [&](const wire::StreamDataFrame& part) { on_stream(part, frame, message); },
                         [&](const wire::StreamEndFrame& part) { on_stream(part, frame, message); },
                         [&](const wire::CreditFrame& part) { on_stream(part, frame, message); },
                         [&](const auto& other) {
                           protocol_error(std::string(to_string(other.kind)) +
                                          " frame from the server: only a client sends this kind");
                         },
                     });
}

// The answer notifies the server that no further request is on its way.
void ClientSession::on_goaway() {
  if (std::exchange(going_away_, true)) return;
  send_bare(wire::GoawayFrame{});
  owner_.on_place();
}

template <class StreamFrame>
void ClientSession::on_stream(const StreamFrame& part, const wire::Frame& frame, const transport::Message& message) {
  const Calls::Found found = calls_.find(part.call);
  if (found.state == Calls::State::open && found.call->stream() == nullptr) {
    return protocol_error(std::string(to_string(part.kind)) + " frame for a call without streams");
  }
  on_stream_frame(part, frame, message, found.call == nullptr ? nullptr : found.call->stream());
}

void ClientSession::on_error(const wire::ErrorFrame& reply, std::string_view text) {
  CallOperation* const operation = close_call(reply.call, reply.kind);
  if (operation == nullptr) return;
  Error error{reply.code, reply.scope, Initiator::peer, reply.application_code, std::string(text)};
  if (error.code == ErrorCode::unknown_method || error.code == ErrorCode::signature_mismatch) {
    error.text = "'" + std::string(operation->request().name) + "': " + error.text;
  }
  if (detail::StreamCore* stream = operation->stream()) stream->on_closed(error);
  operation->complete(loop(), std::move(error));
}

transport::ReceiveBuffer ClientSession::select_receive_buffer(Bytes head, std::size_t payload_bytes) {
  using Where = transport::ReceiveBuffer::Kind;
  const Result<wire::Frame> frame = wire::decode_frame(head, {}, payload_bytes);
  if (!frame) {
    protocol_error(frame.error().text);
    return {Where::discard, {}};
  }
  if (const auto selected = select_memory(*frame, payload_bytes)) return *selected;
  const Calls::Found found = calls_.find(frame->call());
  if (found.state != Calls::State::open) return {Where::discard, {}};
  if (frame->kind != wire::FrameKind::response) return {};
  const MutableBytes memory = found.call->memory();
  if (memory.empty()) return {};
  if (memory.size() < payload_bytes) return {Where::discard, {}};
  found.call->receive_buffer = memory.data();
  return {Where::given, memory};
}

// ---- The end ----

void ClientSession::close_because(std::string_view why) {
  if (closed()) return;
  connection().flush();
  end_session(Error::of_connection(ErrorCode::unavailable, std::string(why)));
}

void ClientSession::finish() {
  finishing_ = true;
  if (calls_.size() != 0) return;
  // The loop closes the session, since this function may be called from within the connection.
  loop().post([self = shared_from_this()] { self->close(); });
}

void ClientSession::on_end(const Error& reason, std::uint64_t sent) {
  const std::shared_ptr<ClientSession> alive = shared_from_this();
  std::vector<CallOperation*> open;
  calls_.each_open([&](CallOperation& operation) { open.push_back(&operation); });
  for (CallOperation* operation : open) {
    calls_.close(CallId::from_number(operation->id()));
    // A request that was not sent completely cannot have been executed.
    const bool unsent = sent < operation->sent_mark;
    if (owner_.take_over(*this, *operation, unsent, reason)) continue;
    const Error error = ended_call(unsent, reason);
    if (detail::StreamCore* stream = operation->stream()) stream->on_closed(error);
    operation->complete(loop(), error);
  }
  ponged_.notify_all();
  owner_.on_place();
  owner_.on_session_end(*this, reason);
}

Task<Result<Duration>> ClientSession::ping(std::size_t body_bytes) {
  const Time begin = loop().now();
  const std::uint64_t& pongs = filled_bytes(body_bytes) == 0 ? pongs_ : long_pongs_;
  const std::uint64_t before = pongs;
  send_filled(wire::PingFrame{}, body_bytes);
  while (pongs == before && !closed()) {
    co_await ponged_.wait();
  }
  if (pongs == before) co_return fail(Error::of_connection(ErrorCode::unavailable, "the connection ended"));
  co_return loop().now() - begin;
}

void ClientSession::on_pong(std::size_t body_bytes) {
  ++pongs_;
  if (body_bytes != 0) ++long_pongs_;
  ponged_.notify_all();
}

}  // namespace hawser::rpc
