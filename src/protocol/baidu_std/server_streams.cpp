#include <algorithm>
#include <cstring>
#include <utility>

#include "protocol/baidu_std/server_session.h"

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

detail::ActiveCall* ServerSession::active(std::uint32_t number) const noexcept {
  return calls().find(wire::CallId::from_number(number));
}

StreamSettings ServerSession::own_settings(std::uint32_t number, const ServerStream& stream) noexcept {
  return {own_id(number), true, stream.incoming, 0};
}

// Sends the reply that opens the stream. It has no data: the handler's result becomes the last message.
void ServerSession::accept_stream(std::uint32_t number, ServerCall& call) {
  ServerStream& stream = *call.stream;
  const RpcMeta meta{
      .response = ResponseMeta{}, .correlation_id = call.correlation_id, .stream = own_settings(number, stream)};
  begin_response(call, meta, nullptr, 0, 0);
  stream.accepted = true;
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

void ServerSession::on_stream_frame(const ReceivedFrame& frame) {
  const Result<StreamFrameMeta> parsed = parse_stream_meta(frame.meta);
  if (!parsed) return protocol_error(parsed.error().text);
  if (!authenticated_) return protocol_error("a STRM frame precedes the request that carries the credential");
  const StreamFrameMeta& meta = *parsed;
  // Any number may come, also the least one.
  const bool is_id = meta.stream_id >= own_id(0) && meta.stream_id <= own_id(UINT32_MAX);
  const std::int64_t number = is_id ? meta.stream_id - 1 : 0;
  ServerCall* const call = is_id ? states_.find(static_cast<std::uint32_t>(number)) : nullptr;
  ServerStream* const stream = call == nullptr ? nullptr : call->stream.get();
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
    case StreamFrameType::feedback: break;
    case StreamFrameType::unknown: return protocol_error("a STRM frame has an unknown frame_type");
  }
  if (meta.consumed_size <= stream->peer_consumed) return;
  const std::int64_t more = meta.consumed_size - stream->peer_consumed;
  if (meta.consumed_size > stream->produced) {
    return protocol_error("FEEDBACK for " + std::to_string(meta.consumed_size) + " bytes of a stream on which " +
                          std::to_string(stream->produced) + " were sent");
  }
  stream->peer_consumed = meta.consumed_size;
  if (stream->core == nullptr) return;
  const Result<void> status = stream->core->on_credit(static_cast<std::uint32_t>(more));
  if (!status) protocol_error(status.error().text);
}

void ServerSession::on_stream_data(std::uint32_t number, ServerStream& stream, const StreamFrameMeta& meta,
                                   const ReceivedFrame& frame) {
  if (!stream.incoming || stream.core == nullptr) {
    return reset_stream(number, stream,
                        {ErrorCode::invalid_argument, ErrorScope::call, Initiator::peer, 0,
                         "the caller writes to a stream that the handler does not read"});
  }
  const Error no_memory{ErrorCode::limit_exceeded, ErrorScope::call, Initiator::local, 0,
                        "a stream item of the peer was refused: what is received and kept would pass "
                        "receive_bytes_max of the loop, receive_share_bytes_max of the connection or "
                        "receive_peer_bytes_max of its peer"};
  // Small items are copied, because the receive block that contains them is much larger.
  constexpr std::size_t small_bytes_max = 4096;
  detail::StreamCore::Item item;
  bool kept = !frame.discarded;
  const bool whole = stream.parts.empty() && !meta.has_continuation;
  if (kept) {
    const bool copies = frame.block == nullptr || frame.data.size() <= small_bytes_max || !whole;
    item.body = copies ? Buffer::copy_of(frame.data) : Buffer::share(frame.block, frame.data.data(), frame.data.size());
    if (account().bounded()) {
      const std::size_t bytes = item.body.block()->size() + detail::StreamCore::kept_item_bytes;
      kept = !whole   ? stream.parts_charge.add(account(), bytes)
             : copies ? item.body_charge.add(account(), bytes)
                      : item.body_charge.keep(account(), item.body);
    }
  }
  if (!kept) {
    host().counters.memory_refusals.add(1);
    return reset_stream(number, stream, no_memory);
  }
  if (!whole) {
    stream.parts_bytes += item.body.size();
    if (stream.parts_bytes > frame_bytes_max_) {
      return reset_stream(number, stream,
                          {ErrorCode::limit_exceeded, ErrorScope::call, Initiator::peer, 0,
                           "the parts of a stream item exceed message_bytes_max (" + std::to_string(frame_bytes_max_) +
                               " bytes): raise it or send less"});
    }
    stream.parts.push_back(std::move(item.body));
    if (meta.has_continuation) return;
    item.body = {};
    if (account().bounded() && !item.body_charge.add(account(), stream.parts_bytes + sizeof(Block))) {
      host().counters.memory_refusals.add(1);
      return reset_stream(number, stream, no_memory);
    }
    item.body = Buffer::allocate(std::max<std::size_t>(stream.parts_bytes, 1)).slice(0, stream.parts_bytes);
    std::byte* at = item.body.mutable_data();
    for (const Buffer& part : stream.parts) {
      if (!part.empty()) std::memcpy(at, part.data(), part.size());
      at += part.size();
    }
    stream.parts.clear();
    stream.parts_bytes = 0;
    stream.parts_charge.reset();
  }
  const Result<void> status = stream.core->on_item(std::move(item));
  if (!status) protocol_error(status.error().text);
}

void ServerSession::on_stream_closed(std::uint32_t number, ServerStream& stream, bool reset) {
  stream.peer_closed = true;
  stream.parts.clear();
  stream.parts_charge.reset();
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
void ServerSession::reset_stream(std::uint32_t number, ServerStream& stream, const Error& why) {
  send_stream_frame({stream.peer_id, own_id(number), StreamFrameType::reset});
  stream.peer_closed = true;
  stream.parts.clear();
  stream.parts_charge.reset();
  if (detail::ActiveCall* const call = active(number)) call->request_stop(why);
}

// ---- Sending ----

std::byte* ServerSession::begin_item(std::uint32_t call, const codec::EncodedSize& size) {
  ServerCall* const state = states_.find(call);
  if (state == nullptr || closed() || state->stream->peer_closed) return nullptr;
  const std::size_t bytes = size.body + size.payload;
  if (bytes + FrameReceiver::short_frame_bytes_max > frame_bytes_max_) return nullptr;
  ServerStream& stream = *state->stream;
  if (!stream.accepted) accept_stream(call, *state);
  stream.produced += static_cast<std::int64_t>(bytes);
  const StreamFrameMeta meta{stream.peer_id, own_id(call), StreamFrameType::data};
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

// Called for each item that the handler has read, since the stream grants each one again.
void ServerSession::send_credit(std::uint32_t call, std::uint32_t bytes) {
  ServerCall* const state = states_.find(call);
  if (state == nullptr || closed() || state->stream->peer_closed) return;
  ServerStream& stream = *state->stream;
  stream.consumed += bytes;
  if (!stream.peer_needs_feedback || !stream.accepted) return;
  // The peer's buffer may be smaller than feedback_bytes. When everything has been read, it may be waiting.
  if (stream.consumed - stream.reported < feedback_bytes && stream.core->readable()) return;
  stream.reported = stream.consumed;
  send_stream_frame({stream.peer_id, own_id(call), StreamFrameType::feedback, false, stream.consumed});
}

// Writers that find no room wait again, in the same order.
void ServerSession::on_drained() {
  detail::WaitingWriter woken;
  woken.take_all(writers_);
  while (woken.linked() && !closed()) {
    detail::WaitingWriter& first = *woken.next();
    first.unlink();
    detail::StreamCore::on_room(first);
  }
}

}  // namespace hawser::prpc
