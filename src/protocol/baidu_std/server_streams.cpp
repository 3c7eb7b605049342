#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "protocol/baidu_std/server_session.h"
#include "rpc/session/wake_writers.h"

// The streams of a connection: frames with the magic STRM.
namespace hawser::prpc {

std::shared_ptr<detail::StreamCore> ServerSession::open_stream(std::uint32_t call) {
  // The client decides how much it has outstanding, so the window does not bound the items that are stored. The memory
  // for them is charged instead. Each item that is read is granted again, which send_credit() counts.
  const detail::StreamCore::Flow flow{
      .send_credit = options_->stream_buffer_bytes, .window = UINT32_MAX, .item_overhead = 0, .grant_bytes_min = 1};
  auto core = std::make_shared<detail::StreamCore>(static_cast<detail::StreamChannel&>(*this), call, flow);
  ServerCall* const state = states_.find(call);
  if (state != nullptr && state->stream != nullptr) state->stream->core = core;
  return core;
}

bool ServerSession::offers_stream(std::uint32_t call) noexcept {
  const ServerCall* const state = states_.find(call);
  return state != nullptr && state->stream != nullptr && !state->stream->open && state->stream->core == nullptr;
}

std::shared_ptr<detail::StreamCore> ServerSession::accept_stream(std::uint32_t call, Bytes body,
                                                                 const detail::ReplyExtras& extras, bool incoming) {
  if (!offers_stream(call)) return nullptr;
  states_.find(call)->stream->incoming = incoming;
  std::shared_ptr<detail::StreamCore> core = open_stream(call);
  codec::EncodedSize size;
  size.body = body.size();
  std::byte* const to = begin_reply(call, size, extras);
  if (to == nullptr) return nullptr;
  if (!body.empty()) std::memcpy(to, body.data(), body.size());
  pending_.opens_stream = true;
  const ConstBuffer attachment{extras.attachment.data(), extras.attachment.size()};
  end_reply(std::span(&attachment, extras.attachment.empty() ? 0 : 1), nullptr);
  const ServerCall* const state = states_.find(call);
  return state != nullptr && state->stream->open ? core : nullptr;
}

detail::ActiveCall* ServerSession::active(std::uint32_t number) const noexcept {
  return calls().find(wire::CallId::from_number(number));
}

// Sends the reply that opens the stream. It has no data: the handler's result becomes the last message.
void ServerSession::send_opening_reply(ServerCall& call) {
  const RpcMeta meta{
      .response = ResponseMeta{}, .correlation_id = call.correlation_id, .stream = call.stream->settings(true)};
  begin_response(call, meta, nullptr, 0, 0);
  call.stream->open = true;
  commit(pending_.head_bytes);
}

void ServerSession::send_stream_frame(const StreamFrameMeta& meta) {
  const std::size_t size = stream_meta_bytes(meta);
  std::byte* const at = reserve(FrameHeader::bytes + size);
  write_stream_meta(
      write_header(at, {FrameKind::stream, static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(size)}), meta);
  commit(FrameHeader::bytes + size);
}

// ---- Receiving ----

void ServerSession::check(const Result<void>& status) {
  if (!status) protocol_error(status.error().text);
}

void ServerSession::on_stream_frame(const ReceivedFrame& frame) {
  const Result<StreamFrameMeta> parsed = parse_stream_meta(frame.meta);
  if (!parsed) return protocol_error(parsed.error().text);
  if (!authenticated_) return protocol_error("a STRM frame precedes the request that carries the credential");
  const StreamFrameMeta& meta = *parsed;
  // Any number may come, also the least one.
  const bool is_id = meta.stream_id >= own_id(0) && meta.stream_id <= own_id(UINT32_MAX);
  const std::int64_t number = is_id ? meta.stream_id - 1 : 0;
  ServerCall* const call = is_id ? states_.find(static_cast<std::uint32_t>(number)) : nullptr;
  StreamEnd* const stream = call == nullptr ? nullptr : call->stream.get();
  if (stream == nullptr || stream->peer_closed) {
    // The peer learns that the stream has ended. Frames that end or acknowledge are not answered.
    if (meta.type == StreamFrameType::data) {
      send_stream_frame({meta.source_stream_id, meta.stream_id, StreamFrameType::reset});
    }
    return;
  }
  const auto id = static_cast<std::uint32_t>(number);
  switch (meta.type) {
    case StreamFrameType::data: return on_stream_data(id, *stream, meta, frame);
    case StreamFrameType::close: return on_stream_closed(id, *stream, false);
    case StreamFrameType::reset: return on_stream_closed(id, *stream, true);
    case StreamFrameType::feedback: return check(stream->take_feedback(meta.consumed_size));
    case StreamFrameType::end: return check(stream->take_end());
    case StreamFrameType::unknown: return protocol_error(StreamEnd::unknown_frame);
  }
}

void ServerSession::on_stream_data(std::uint32_t number, StreamEnd& stream, const StreamFrameMeta& meta,
                                   const ReceivedFrame& frame) {
  if (!stream.incoming || stream.core == nullptr) {
    return reset_stream(number, stream,
                        {ErrorCode::invalid_argument, ErrorScope::call, Initiator::peer, 0,
                         "the caller writes to a stream that the handler does not read"});
  }
  Result<std::optional<StreamEnd::Item>> item =
      stream.take_data(meta, frame, account(), frame_bytes_max_,
                       "receive_bytes_max of the loop, receive_share_bytes_max of the connection or "
                       "receive_peer_bytes_max of its peer");
  if (!item) {
    if (item.error().initiator == Initiator::local) host().counters.memory_refusals.add(1);
    return reset_stream(number, stream, item.error());
  }
  if (*item) check(stream.core->on_item(std::move(**item)));
}

void ServerSession::on_stream_closed(std::uint32_t number, StreamEnd& stream, bool reset) {
  stream.peer_closed = true;
  stream.drop_parts();
  const bool reads = stream.incoming;
  const std::shared_ptr<detail::StreamCore> core = stream.core;
  // The handler reads what has arrived, then the end. Writing fails from now on.
  if (!reset && core != nullptr) core->on_closed(std::nullopt);
  detail::ActiveCall* const call = active(number);
  if (call == nullptr) return;
  // A handler that reads finishes its work after the end. Another one has nobody to work for.
  if (reset) {
    call->request_stop(ErrorCode::cancelled, Initiator::peer, "the caller has reset the stream");
  } else if (!reads) {
    call->request_stop(ErrorCode::cancelled, Initiator::peer, "the caller has closed the stream");
  }
}

// Ends the stream and asks the handler to stop. Its answer is not sent.
void ServerSession::reset_stream(std::uint32_t number, StreamEnd& stream, const Error& why) {
  send_stream_frame(stream.frame(StreamFrameType::reset));
  stream.peer_closed = true;
  stream.drop_parts();
  if (detail::ActiveCall* const call = active(number)) call->request_stop(why);
}

// ---- Sending ----

std::byte* ServerSession::begin_item(std::uint32_t call, const codec::EncodedSize& size) {
  ServerCall* const state = states_.find(call);
  if (state == nullptr || closed() || state->stream->peer_closed) return nullptr;
  const std::size_t bytes = size.body + size.payload;
  if (bytes + FrameReceiver::short_frame_bytes_max > frame_bytes_max_) return nullptr;
  StreamEnd& stream = *state->stream;
  if (!stream.open) send_opening_reply(*state);
  stream.produced += static_cast<std::int64_t>(bytes);
  const StreamFrameMeta meta = stream.frame(StreamFrameType::data);
  const std::size_t meta_size = stream_meta_bytes(meta);
  item_head_bytes_ = FrameHeader::bytes + meta_size + size.body;
  std::byte* const at = reserve(item_head_bytes_);
  return write_stream_meta(write_header(at, {FrameKind::stream, static_cast<std::uint32_t>(meta_size + bytes),
                                             static_cast<std::uint32_t>(meta_size)}),
                           meta);
}

void ServerSession::end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  commit(item_head_bytes_);
  if (!pieces.empty()) {
    borrow(pieces, owner);
  } else if (owner != nullptr) {
    owner->on_send_complete();
  }
}

// The protocol of bRPC ends both directions together, when the call ends.
void ServerSession::send_end(std::uint32_t call) {
  ServerCall* const state = states_.find(call);
  if (state == nullptr || closed() || state->stream->peer_closed || !state->stream->extended) return;
  if (!state->stream->open) send_opening_reply(*state);
  send_stream_frame(state->stream->frame(StreamFrameType::end));
}

// Called for each item that the handler has read, since the stream grants each one again.
void ServerSession::send_credit(std::uint32_t call, std::uint32_t bytes) {
  ServerCall* const state = states_.find(call);
  if (state == nullptr || closed() || !state->stream->count_consumed(bytes)) return;
  StreamFrameMeta feedback = state->stream->frame(StreamFrameType::feedback);
  feedback.consumed_size = state->stream->consumed;
  send_stream_frame(feedback);
}

void ServerSession::on_drained() { rpc::wake_writers(writers_); }

}  // namespace hawser::prpc
