#include "rpc/server/server_session.h"

#include <algorithm>
#include <new>
#include <utility>

#include "hawser/detail/handler.h"

namespace hawser::rpc {

using detail::ActiveCall;
using wire::CallId;

ServerSession::ServerSession(Loop& loop, std::unique_ptr<transport::Connection> connection,
                             const SessionSettings& settings, ServerLoopShared& shared, Owner& owner)
    : Session(loop, std::move(connection), settings),
      shared_(shared),
      owner_(owner),
      peer_(Session::connection().peer()),
      connection_charges_(Session::connection().capabilities().charges) {
  shared_.counters.open.add(1);
}

ServerSession::~ServerSession() { shared_.counters.open.add(-1); }

// ---- Requests ----

void ServerSession::on_frame(const wire::Frame& frame, const transport::Message& message) {
  if (!connection_charges_ && account().arriving() != 0) {
    // From now on, the object that keeps the payload pays for it.
    const std::size_t selected = message.payload.size() < connection().capabilities().receive_buffer_bytes_min
                                     ? 0
                                     : std::min(account().arriving(), message.payload.size());
    account().set_arriving(account().arriving() - selected);
  }
  wire::visit(frame, wire::Visitor{
                         [&](const wire::RequestFrame& request) { on_request(request, frame, message); },
                         [&](const wire::CancelFrame& cancel) {
                           if (ActiveCall* const call = find(cancel.call)) {
                             call->request_stop(ErrorCode::cancelled, Initiator::peer, "the caller cancelled the call");
                           }
                         },
                         [&](const wire::GoawayFrame&) {
                           peer_understood_ = true;
                           check_idle();
                         },
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
  ActiveCall* const call = find(part.call);
  on_stream_frame(part, frame, message, call == nullptr ? nullptr : call->stream_if_open());
}

void ServerSession::on_request(const wire::RequestFrame& header, const wire::Frame& frame,
                               const transport::Message& message) {
  shared_.counters.calls.add(1);
  const std::uint32_t number = header.call.number();
  const std::size_t slot = header.call.slot();
  // This check precedes every refusal, because a refusal would answer the call that uses the slot.
  if (slot < by_slot_.size() && by_slot_[slot] != nullptr) [[unlikely]] {
    return protocol_error("REQUEST for a slot whose call is in flight (" + to_string(header.call) + ")");
  }
  const Dispatcher::Method* const method = shared_.dispatcher.find(header.method);
  if (method == nullptr) [[unlikely]] {
    return refuse(number, ErrorCode::unknown_method,
                  "the server has no handler of that name: register it, or compare the names on both sides");
  }
  if (method->signature != header.signature) [[unlikely]] {
    return refuse(number, ErrorCode::signature_mismatch,
                  "the server's handler of that name takes or gives other types: build both sides from the same "
                  "declaration");
  }
  if (going_away_) [[unlikely]]
    return refuse(number, ErrorCode::unavailable, "the server is stopping");
  if (message.discarded) [[unlikely]] {
    return refuse_unkept(number);
  }
  if (slot >= settings().calls_max || unanswered_ >= settings().calls_max) [[unlikely]] {
    return refuse(number, ErrorCode::overloaded,
                  std::to_string(settings().calls_max) + " calls (calls_per_connection_max) are in flight already");
  }
  if (shared_.calls_in_flight.load(std::memory_order_relaxed) >= shared_.options.calls_max) [[unlikely]] {
    return refuse(number, ErrorCode::overloaded,
                  std::to_string(shared_.options.calls_max) + " calls (calls_max) are in flight on the server already");
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
  shared_.serving = true;
  try {
    method->handler->serve(request);
  } catch (...) {
    // Memory for the call's frame is exhausted; the call has not been entered.
    detail::reply_thrown(*this, number, "beginning the call");
  }
  shared_.serving = false;
}

void ServerSession::refuse_unkept(std::uint32_t call) {
  shared_.counters.memory_refusals.add(1);
  refuse(call, ErrorCode::overloaded,
         "the request does not fit into the memory for what is received and kept: receive_bytes_max allows " +
             std::to_string(shared_.budget.bytes_max()) + " bytes on the loop, of which " +
             std::to_string(shared_.budget.used()) + " are used, and receive_share_bytes_max " +
             std::to_string(shared_.budget.share_bytes_max()) + " bytes to the connection, which uses " +
             std::to_string(account().used()) + ", and receive_peer_bytes_max " +
             std::to_string(shared_.budget.peer_bytes_max()) +
             " bytes to all connections of its peer: send again later, or raise them");
}

void ServerSession::on_unkept_item(std::uint32_t call, const Error& why) {
  shared_.counters.memory_refusals.add(1);
  if (ActiveCall* const active = find(CallId::from_number(call))) active->request_stop(why);
}

void ServerSession::end_if_slow(std::uint64_t bytes) {
  const Behind behind = falls_behind(bytes);
  if (behind == Behind::no) return;
  shared_.counters.slow_peers.add(1);
  const std::string window =
      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(shared_.options.receive_window).count()) +
      " ms (receive_window)";
  const std::string rate =
      "receive_rate_min (" + std::to_string(shared_.options.receive_rate_min) + " bytes a second), or lower that";
  const std::string number = std::to_string(bytes);
  const Error why{ErrorCode::deadline_exceeded, ErrorScope::connection, Initiator::peer, 0,
                  behind == Behind::sending
                      ? "of a message that has begun, fewer than " + number + " bytes came within " + window +
                            ": send it faster than " + rate
                      : "of the replies that wait, the peer took fewer than " + number + " bytes within " + window +
                            ", while they keep " + std::to_string(account().used()) + " of the " +
                            std::to_string(shared_.budget.bytes_max()) +
                            " bytes of receive_bytes_max, more than half of which are used: read faster than " + rate};
  session_loop().log(LogLevel::warning, "rpc", "connection from " + peer_ + " closed: " + why.text);
  end_session(why);
}

void ServerSession::refuse(std::uint32_t call, ErrorCode code, std::string text) {
  shared_.counters.calls_refused.add(1);
  reply_error(call, {code, ErrorScope::call, Initiator::local, 0, std::move(text)});
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
  return {};
}

ActiveCall* ServerSession::find(CallId call) const noexcept {
  if (call.slot() >= by_slot_.size()) return nullptr;
  ActiveCall* const found = by_slot_[call.slot()];
  return found != nullptr && found->id() == call.number() ? found : nullptr;
}

void ServerSession::enter(ActiveCall& call) {
  const std::size_t slot = CallId::from_number(call.id()).slot();
  if (slot >= by_slot_.size()) by_slot_.resize(slot + 1);
  by_slot_[slot] = &call;
  ++unanswered_;
  call.next = first_;
  call.previous = &first_;
  if (first_ != nullptr) first_->previous = &call.next;
  first_ = &call;
  ++active_;
  shared_.calls_in_flight.fetch_add(1, std::memory_order_relaxed);
}

void ServerSession::leave(ActiveCall& call) noexcept {
  const CallId id = CallId::from_number(call.id());
  if (find(id) == &call) answered(id);
  *call.previous = call.next;
  if (call.next != nullptr) call.next->previous = call.previous;
  --active_;
  shared_.calls_in_flight.fetch_sub(1, std::memory_order_relaxed);
  if (active_ == 0) check_idle();
}

std::shared_ptr<detail::StreamCore> ServerSession::open_stream(std::uint32_t call) {
  return std::make_shared<detail::StreamCore>(*this, call, settings().peer_window_bytes, settings().own_window_bytes);
}

// ---- Replies ----

// From now on the client may reuse the call's slot, although the call itself may have to wait until its reply is sent.
void ServerSession::answered(CallId call) noexcept {
  if (find(call) == nullptr) return;
  by_slot_[call.slot()] = nullptr;
  --unanswered_;
}

std::byte* ServerSession::begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                                      const detail::ReplyExtras& extras) {
  if (size.too_large) [[unlikely]] {
    reply_error(call, {ErrorCode::limit_exceeded, ErrorScope::call, Initiator::local, 0,
                       "the result can't be encoded: a sequence of 2^31 elements or more, or nesting deeper than 256"});
    return nullptr;
  }
  const CallId id = CallId::from_number(call);
  std::byte* const body = begin_frame(
      wire::ResponseFrame{.call = id, .attachment_bytes = static_cast<std::uint32_t>(extras.attachment.size())},
      size.body, size.payload + extras.attachment.size(), extras.metadata);
  if (body == nullptr && !closed()) [[unlikely]]
    reply_error(call, begin_error());
  answered(id);
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
  end_session({ErrorCode::internal, ErrorScope::connection, Initiator::local, 0, "out of memory"});
}

void ServerSession::reply_error(std::uint32_t call, const Error& error) {
  constexpr std::size_t text_bytes_max = 4096;
  // A caller that accepts short messages only receives the error without its text.
  const std::size_t room = settings().send_bytes_max - wire::header_bytes;
  const Bytes text = as_bytes(std::string_view(error.text).substr(0, std::min(text_bytes_max, room)));
  const CallId id = CallId::from_number(call);
  std::byte* const body = begin_frame(
      wire::ErrorFrame{
          .call = id, .code = error.code, .scope = error.scope, .application_code = error.application_code},
      text.size(), 0);
  if (body == nullptr) return;  // The session has ended, so there is no peer to notify.
  if (!text.empty()) std::memcpy(body, text.data(), text.size());
  end_frame();
  answered(id);
  after_reply();
}

// A client that does not read its replies is not read either, so that its backlog stays bounded.
void ServerSession::after_reply() {
  if (connection().backlog() > settings().backlog_bytes_max && !connection().paused()) {
    connection().flush();
    if (!closed() && connection().backlog() > settings().backlog_bytes_max) connection().pause();
  }
}

// ---- The end ----

void ServerSession::go_away() {
  if (closed() || std::exchange(going_away_, true)) return;
  send_bare(wire::GoawayFrame{});
  check_idle();
}

unsigned ServerSession::silent_checks() noexcept {
  const std::uint64_t sent = connection().sent();
  const bool silent = !closed() && active_ == 0 && connection().backlog() == 0 && sent == sent_at_check_;
  sent_at_check_ = sent;
  silent_checks_ = silent ? silent_checks_ + 1 : 0;
  return silent_checks_;
}

void ServerSession::cancel_calls(const Error& why) {
  // The ids are collected first, because stopping one call may end it and other calls.
  std::vector<std::uint32_t> ids;
  for (const ActiveCall* call = first_; call != nullptr; call = call->next) ids.push_back(call->id());
  for (const std::uint32_t id : ids) {
    if (ActiveCall* call = find(CallId::from_number(id))) call->request_stop(why);
  }
}

bool ServerSession::handles(const void* frame) const noexcept {
  for (const ActiveCall* call = first_; call != nullptr; call = call->next) {
    if (call->handler_frame == frame) return true;
  }
  return false;
}

void ServerSession::destroy_calls() {
  for (ActiveCall* call = first_; call != nullptr;) {
    if (call->pinned()) {
      // The call ends by itself, at once if its work still waits for a thread.
      call->request_stop(ErrorCode::cancelled, Initiator::local, "the server has stopped");
      call = call->next;
      continue;
    }
    call->destroy_coroutine();
    call = first_;
  }
}

void ServerSession::on_end(const Error& reason, std::uint64_t) {
  if (reason.code == ErrorCode::protocol_error) {
    shared_.counters.protocol_errors.add(1);
    session_loop().log(LogLevel::warning, "rpc", "connection from " + peer_ + " closed: " + reason.text);
  }
  account().set_arriving(0);
  try {
    cancel_calls({ErrorCode::cancelled, ErrorScope::connection, reason.initiator, 0,
                  "the caller's connection ended: " + reason.text});
  } catch (const std::bad_alloc&) {
    // The calls end by themselves, or when the server ends.
  }
  check_idle();
}

void ServerSession::check_idle() {
  if (active_ != 0) return;
  if (closed()) {
    if (end_ != nullptr) owner_.on_session_idle(std::move(end_));
  } else if (going_away_ && peer_understood_) {
    // Sends the rest of the backlog. The peer answers the end of the stream with its own end.
    connection().close();
  }
}

}  // namespace hawser::rpc
