#include "rpc/server/server_session.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "hawser/detail/handler.h"

namespace hawser::rpc {

using detail::ActiveCall;
using wire::CallId;

ServerSession::ServerSession(PortHost& host, std::unique_ptr<transport::Connection> connection,
                             const SessionSettings& settings, std::shared_ptr<const Identity> identity)
    : Session(host.loop, std::move(connection), settings),
      PortSession(host, Session::connection().peer(), std::move(identity)),
      connection_charges_(Session::connection().capabilities().charges) {}

ServerSession::~ServerSession() = default;

void ServerSession::describe(ConnectionReport& report) const {
  const transport::Connection& carrier = connection();
  report.transport = carrier.transport();
  report.received_bytes = carrier.arrived();
  report.sent_bytes = carrier.sent();
  report.backlog = carrier.backlog();
  report.memory_bytes = account().used();
  report.paused = carrier.paused();
  report.link = transport::link_facts_of(&carrier);
  report.details = transport::link_details_of(&carrier);
}

// ---- Requests ----

[[gnu::always_inline]] inline void ServerSession::on_request(const wire::RequestFrame& header, const wire::Frame& frame,
                                                             const transport::Message& message,
                                                             PlacedPayloads::Placed* placed) {
  host().counters.calls.add(1);
  const std::uint32_t number = header.call.number();
  // This check precedes every refusal, because a refusal would answer the call that uses the slot.
  if (calls().in_slot(header.call.slot()) != nullptr) [[unlikely]] {
    return protocol_error("REQUEST for a slot whose call is in flight (" + to_string(header.call) + ")");
  }
  const Dispatcher::Method* const method = host().dispatcher.find(header.method);
  if (method == nullptr) [[unlikely]] {
    return refuse(number, ErrorCode::unknown_method,
                  "the server has no handler of that name: register it, or compare the names on both sides");
  }
  if (method->signature != header.signature) [[unlikely]] {
    return refuse(number, ErrorCode::signature_mismatch,
                  "the server's handler of that name takes or gives other types: build both sides from the same "
                  "declaration");
  }
  if (message.discarded) [[unlikely]] {
    if (placed != nullptr && !placed->refusal.empty()) return refuse_placed(number, *method, *placed);
    return refuse_unkept(number);
  }
  if (header.call.slot() >= settings().agreed.calls_max || full(settings().agreed.calls_max)) [[unlikely]] {
    return refuse(number, full_error(settings().agreed.calls_max));
  }
  detail::IncomingRequest request{.sink = *this,
                                  .call = number,
                                  .body = frame.body,
                                  .payload = frame.payload,
                                  .attachment = frame.attachment,
                                  .metadata = MetadataView(frame.metadata),
                                  .head_block = message.head_block,
                                  .payload_block = message.payload_block,
                                  .account = receive_account(),
                                  .decode_limits = &settings().decode_limits};
  if (header.deadline != 0) {
    request.deadline = session_loop().now() + std::chrono::microseconds(wire::decode_deadline(header.deadline));
  }
  if (method->handler->options.receive_into && !message.payload.empty()) [[unlikely]] {
    return serve_placed(*method, request, frame, message, placed);
  }
  serve(*method, request);
}

[[gnu::noinline]] void ServerSession::on_placed_request(const wire::RequestFrame& header, const wire::Frame& frame,
                                                        const transport::Message& message) {
  std::optional<PlacedPayloads::Placed> placed = placed_.take(header.call.number());
  on_request(header, frame, message, placed ? &*placed : nullptr);
}

void ServerSession::on_frame(const wire::Frame& frame, const transport::Message& message) {
  if (!connection_charges_ && account().arriving() != 0) {
    // From now on, the object that keeps the payload pays for it.
    const std::size_t selected = message.payload.size() < connection().capabilities().receive_buffer_bytes_min
                                     ? 0
                                     : std::min(account().arriving(), message.payload.size());
    account().set_arriving(account().arriving() - selected);
  }
  wire::visit(frame, wire::Visitor{
                         [&](const wire::RequestFrame& request) {
                           if (placed_.empty()) [[likely]]
                             return on_request(request, frame, message, nullptr);
                           on_placed_request(request, frame, message);
                         },
                         [&](const wire::CancelFrame& cancel) {
                           const StopsTokens stops(host());
                           if (ActiveCall* const call = calls().find(cancel.call)) {
                             call->request_stop(ErrorCode::cancelled, Initiator::peer, "the caller cancelled the call");
                           }
                         },
                         [&](const wire::GoawayFrame&) {
                           peer_understood_ = true;
                           if (going_away_) begin_ending();
                           check_idle();
                         },
                         [&](const wire::MemoryFrame& part) { on_memory_frame(part, frame, message); },
                         [&](const wire::MemoryReplyFrame& part) { on_memory_frame(part, frame, message); },
                         [&](const wire::StreamDataFrame& part) { on_stream(part, frame, message); },
                         [&](const wire::StreamEndFrame& part) { on_stream(part, frame, message); },
                         [&](const wire::CreditFrame& part) { on_stream(part, frame, message); },
                         [&](const auto& other) {
                           protocol_error(std::string(to_string(other.kind)) +
                                          " frame from the client: only a server sends this kind");
                         },
                     });
}

template <class StreamFrame>
void ServerSession::on_stream(const StreamFrame& part, const wire::Frame& frame, const transport::Message& message) {
  ActiveCall* const call = calls().find(part.call);
  on_stream_frame(part, frame, message, call == nullptr ? nullptr : call->stream_if_open());
}

void ServerSession::refuse_unkept(std::uint32_t call) { refuse(call, unkept_error(account())); }

void ServerSession::on_unkept_item(std::uint32_t call, const Error& why) {
  host().counters.memory_refusals.add(1);
  if (ActiveCall* const active = calls().find(CallId::from_number(call))) active->request_stop(why);
}

void ServerSession::end_if_slow(std::uint64_t bytes) {
  const pipe::PeerPace::Behind behind = falls_behind(bytes);
  if (behind != pipe::PeerPace::Behind::no) end_session(slow_error(behind, bytes, account()));
}

void ServerSession::refuse(std::uint32_t call, ErrorCode code, std::string text) {
  refuse(call, Error::of_call(code, std::move(text)));
}

void ServerSession::refuse(std::uint32_t call, const Error& why) {
  host().counters.calls_refused.add(1);
  reply_error(call, why);
}

// The payload that `frame` announces or has, for HandlerOptions::receive_into.
IncomingPayload ServerSession::describe(const wire::Frame& frame, std::size_t payload_bytes,
                                        std::size_t attachment_bytes) const noexcept {
  return {.bytes = payload_bytes,
          .attachment_bytes = attachment_bytes,
          .metadata = MetadataView(frame.metadata),
          .encoded_arguments = frame.body,
          .decode_limits = &settings().decode_limits};
}

// The application has no memory for the payload of a request.
void ServerSession::refuse_placed(std::uint32_t call, const Dispatcher::Method& method,
                                  PlacedPayloads::Placed& placed) {
  if (!placed.thrown.empty()) {
    placed.refusal = exception_error({}, method.name, "HandlerOptions::receive_into", std::move(placed.thrown)).text;
  }
  refuse(call, ErrorCode::limit_exceeded, std::move(placed.refusal));
}

// Serves a request whose payload lies in memory that the application selected, or is copied there.
void ServerSession::serve_placed(const Dispatcher::Method& method, detail::IncomingRequest& request,
                                 const wire::Frame& frame, const transport::Message& message,
                                 PlacedPayloads::Placed* placed) {
  PlacedPayloads::Placed copied;
  if (placed == nullptr) {
    copied = PlacedPayloads::copy(method.handler->options.receive_into,
                                  describe(frame, message.payload.size(), frame.attachment.size()), message.payload);
    if (!copied.refusal.empty()) return refuse_placed(request.call, method, copied);
    placed = &copied;
  }
  if (!placed->memory.empty()) {
    const Bytes payload = placed->memory.bytes().first(message.payload.size());
    request.payload = payload.first(frame.payload.size());
    request.attachment = payload.last(frame.attachment.size());
    request.payload_block = placed->memory.block();
    request.placed = true;
  }
  serve(method, request);
}

transport::ReceiveBuffer ServerSession::select_receive_buffer(Bytes head, std::size_t payload_bytes) {
  using Where = transport::ReceiveBuffer::Kind;
  const Result<wire::Frame> frame = wire::decode_frame(head, {}, payload_bytes);
  if (!frame) {
    protocol_error(frame.error().text);
    return {Where::discard, {}};
  }
  if (!connection_charges_ && !account().set_arriving(account().arriving() + payload_bytes))
    return {Where::discard, {}};
  if (const auto selected = select_memory(*frame, payload_bytes)) return *selected;
  if (frame->kind != wire::FrameKind::request || ending()) return {};
  transport::ReceiveBuffer selected;
  wire::visit(*frame, wire::Visitor{[&](const wire::RequestFrame& request) {
                                      const Dispatcher::Method* const method = host().dispatcher.find(request.method);
                                      if (method == nullptr || method->signature != request.signature) return;
                                      const ReceiveInto& into = method->handler->options.receive_into;
                                      if (!into) return;
                                      selected =
                                          placed_.select(request.call.number(), into,
                                                         describe(*frame, payload_bytes, request.attachment_bytes),
                                                         connection_charges_ ? receive_account() : nullptr);
                                    },
                                    [](const auto&) {}});
  return selected;
}

std::shared_ptr<detail::StreamCore> ServerSession::open_stream(std::uint32_t call) {
  return std::make_shared<detail::StreamCore>(*this, call, settings().agreed.peer_window_bytes,
                                              settings().agreed.own_window_bytes);
}

// ---- Replies ----

std::byte* ServerSession::begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                                      const detail::ReplyExtras& extras) {
  if (size.too_large) [[unlikely]] {
    reply_error(call, Error::of_call(size.code, std::string("the result can't be encoded: ") + size.why_not));
    return nullptr;
  }
  const CallId id = CallId::from_number(call);
  count_reply(call, size.body + size.payload + extras.attachment.size());
  std::byte* const body = begin_frame(
      wire::ResponseFrame{.call = id, .attachment_bytes = static_cast<std::uint32_t>(extras.attachment.size())},
      size.body, size.payload + extras.attachment.size(), extras.metadata);
  if (body == nullptr && !closed()) [[unlikely]]
    reply_error(call, begin_error());
  calls().answered(id);
  return body;
}

void ServerSession::end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  try {
    end_frame(pieces, owner);
    after_reply();
  } catch (...) {
    fail_connection();
  }
}

void ServerSession::fail_connection() noexcept {
  end_session(Error::of_connection(ErrorCode::internal, "out of memory"));
}

void ServerSession::reply_error(std::uint32_t call, const Error& error) {
  constexpr std::size_t text_bytes_max = 4096;
  // A caller that accepts short messages only receives the error without its text.
  const std::size_t room = settings().agreed.send_bytes_max - wire::header_bytes;
  const Bytes text = as_bytes(std::string_view(error.text).substr(0, std::min(text_bytes_max, room)));
  const CallId id = CallId::from_number(call);
  const ErrorCode code = code_for_caller(call, error.code);
  count_error(call, code, error);
  std::byte* const body = begin_frame(
      wire::ErrorFrame{.call = id, .code = code, .scope = error.scope, .application_code = error.application_code},
      text.size(), 0);
  if (body == nullptr) return;  // The session has ended, so there is no peer to notify.
  if (!text.empty()) std::memcpy(body, text.data(), text.size());
  end_frame();
  calls().answered(id);
  after_reply();
}

// A client that does not read its replies is not read either, so that its backlog stays bounded.
void ServerSession::after_reply() {
  charge_backlog();
  if (!closed() && !has_room() && !held()) {
    connection().flush();
    if (!closed() && !has_room()) hold();
  }
}

// ---- The end ----

void ServerSession::go_away() {
  if (closed()) return;
  begin_ending();
  leave();
  check_idle();
}

bool ServerSession::leave() {
  if (!closed() && !std::exchange(going_away_, true)) send_bare(wire::GoawayFrame{});
  return closed() || peer_understood_;
}

unsigned ServerSession::silent_checks() noexcept {
  const bool unoccupied = active_calls() == 0 && connection().backlog() == 0;
  return silence_.check(connection().arrived() + connection().sent(), !closed() && unoccupied);
}

void ServerSession::on_end(const Error& reason, std::uint64_t) {
  if (reason.code == ErrorCode::protocol_error) host().counters.protocol_errors.add(1);
  log_closed(reason);
  begin_ending();
  placed_.clear();
  account().set_arriving(0);
  try {
    cancel_calls(
        Error::of_connection(reason.initiator, ErrorCode::cancelled, "the caller's connection ended: " + reason.text));
  } catch (const std::bad_alloc&) {
    // The calls end by themselves, or when the server ends.
  }
  check_idle();
}

void ServerSession::check_idle() {
  if (active_calls() != 0) return;
  if (closed()) {
    notify_idle();
  } else if (going_away_ && peer_understood_) {
    // Sends the rest of the backlog. The peer answers the end of the stream with its own end.
    connection().close();
  }
}

}  // namespace hawser::rpc
