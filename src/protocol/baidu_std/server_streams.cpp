#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "protocol/baidu_std/server_session.h"
#include "rpc/session/wake_writers.h"

// The streams of a connection: frames with the magic STRM.
namespace hawser::protocol::baidu_std {

namespace {

constexpr std::string_view reset_by_caller = "the caller has reset the stream";

}  // namespace

std::shared_ptr<detail::StreamCore> BaiduStdServerSession::open_stream(std::uint32_t call) {
  // The client decides how much it has outstanding, so the window does not bound the items that are stored. The memory
  // for them is charged instead. Each item that is read is granted again, which send_credit() counts.
  const detail::StreamCore::Flow flow{
      .send_credit = options_->stream_buffer_bytes, .window = UINT32_MAX, .item_overhead = 0, .grant_bytes_min = 1};
  auto core = std::make_shared<detail::StreamCore>(static_cast<detail::StreamChannel&>(*this), call, flow);
  ServerCall* const state = states_.find(call);
  if (state != nullptr && state->stream != nullptr) state->stream->core = core;
  return core;
}

std::size_t BaiduStdServerSession::streams_offered(std::uint32_t call) noexcept {
  const ServerCall* const state = states_.find(call);
  if (state == nullptr || state->stream == nullptr || state->stream->open || state->stream->core != nullptr) return 0;
  return 1 + state->offered.size();
}

BaiduStdServerSession::Cores BaiduStdServerSession::accept_streams(std::uint32_t call, Bytes body,
                                                                   const detail::ReplyExtras& extras, bool incoming) {
  if (streams_offered(call) == 0) return {};
  ServerCall& state_of_call = *states_.find(call);
  StreamEnd& first = *state_of_call.stream;
  first.incoming = incoming;
  Cores cores{open_stream(call)};
  cores.reserve(1 + state_of_call.offered.size());
  state_of_call.further.reserve(state_of_call.offered.size());
  for (const std::int64_t peer_id : std::exchange(state_of_call.offered, {})) {
    if (states_.full()) {
      reply_error(call, Error::of_call(ErrorCode::overloaded,
                                       "the places of the connection for calls and streams, of which it has " +
                                           std::to_string(states_.size()) + ", are all used: end streams earlier"));
      return {};
    }
    const auto [number, state] = states_.add();
    state_of_call.further.push_back(number);
    state.stream_of = call;
    state.stream = std::make_unique<StreamEnd>();
    state.stream->id = own_id(number);
    state.stream->peer_id = peer_id;
    state.stream->peer_needs_feedback = first.peer_needs_feedback;
    state.stream->incoming = incoming;
    state.stream->extended = first.extended;
    cores.push_back(open_stream(number));
  }
  codec::EncodedSize size;
  size.body = body.size();
  std::byte* const to = begin_reply(call, size, extras);
  if (to == nullptr) return {};
  if (!body.empty()) std::memcpy(to, body.data(), body.size());
  pending_.opens_stream = true;
  const ConstBuffer attachment{extras.attachment.data(), extras.attachment.size()};
  end_reply(std::span(&attachment, extras.attachment.empty() ? 0 : 1), nullptr);
  ServerCall* const state = states_.find(call);
  if (state == nullptr || !state->stream->open) return {};
  for (const std::uint32_t number : state->further) states_.find(number)->stream->open = true;
  return cores;
}

void BaiduStdServerSession::close_stream(const detail::StreamCore& core) {
  ServerCall* const state = states_.find(core.call());
  if (state == nullptr || state->stream == nullptr || state->stream->core.get() != &core) return;
  StreamEnd& stream = *state->stream;
  if (stream.open && !stream.peer_closed && !closed()) send_stream_frame(stream.frame(StreamFrameType::close));
  stream.peer_closed = true;
  stream.drop_parts();
  // Nobody reads the items that are left.
  const std::shared_ptr<detail::StreamCore> ended = std::exchange(stream.core, nullptr);
  ended->on_closed(std::nullopt);
  ended->end_charges();
}

void BaiduStdServerSession::drop_further(ServerCall& call) noexcept {
  for (const std::uint32_t number : call.further) {
    // Memory may have been short while the stream was made.
    if (const StreamEnd* const stream = states_.find(number)->stream.get()) {
      try {
        if (stream->open && !stream->peer_closed && !closed()) send_stream_frame(stream->frame(StreamFrameType::reset));
      } catch (const std::bad_alloc&) {
        // The next frame of the stream is answered by a reset.
      }
      if (stream->core != nullptr) stream->core->on_closed(std::nullopt);
    }
    states_.remove(number);
  }
  call.further.clear();
}

detail::ActiveCall* BaiduStdServerSession::active(std::uint32_t number) const noexcept {
  return calls().find(wire::CallId::from_number(number));
}

StreamSettings BaiduStdServerSession::settings_of(const ServerCall& call) {
  StreamSettings settings = call.stream->settings(true);
  for (const std::uint32_t number : call.further) settings.extra_ids.push_back(own_id(number));
  return settings;
}

// Sends the reply that opens the stream. It has no data: the handler's result becomes the last message.
void BaiduStdServerSession::send_opening_reply(ServerCall& call) {
  const RpcMeta meta{.response = ResponseMeta{}, .correlation_id = call.correlation_id, .stream = settings_of(call)};
  begin_response(call, meta, nullptr, 0, 0);
  call.stream->open = true;
  commit(pending_.head_bytes);
}

void BaiduStdServerSession::send_stream_frame(const StreamFrameMeta& meta) {
  const std::size_t size = stream_meta_bytes(meta);
  std::byte* const at = reserve(FrameHeader::bytes + size);
  write_stream_meta(
      write_header(at, {BaiduStdFrameKind::stream, static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(size)}),
      meta);
  commit(FrameHeader::bytes + size);
}

// ---- Receiving ----

void BaiduStdServerSession::check(const Result<void>& status) {
  if (!status) protocol_error(status.error().text);
}

void BaiduStdServerSession::on_stream_frame(const ReceivedFrame& frame) {
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

void BaiduStdServerSession::on_stream_data(std::uint32_t number, StreamEnd& stream, const StreamFrameMeta& meta,
                                           const ReceivedFrame& frame) {
  if (!stream.incoming || stream.core == nullptr) {
    return reset_stream(number, stream,
                        Error::of_call(Initiator::peer, ErrorCode::invalid_argument,
                                       "the caller writes to a stream that the handler does not read"));
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

void BaiduStdServerSession::on_stream_closed(std::uint32_t number, StreamEnd& stream, bool reset) {
  stream.peer_closed = true;
  stream.drop_parts();
  const bool reads = stream.incoming;
  const std::shared_ptr<detail::StreamCore> core = stream.core;
  // One of several streams ends alone.
  const ServerCall& state = *states_.find(number);
  if (state.stream_of != 0 || !state.further.empty()) {
    std::optional<Error> why;
    if (reset) why.emplace(ErrorCode::cancelled, ErrorScope::call, Initiator::peer, 0, std::string(reset_by_caller));
    if (core != nullptr) core->on_closed(why);
    return;
  }
  // The handler reads what has arrived, then the end. Writing fails from now on.
  if (!reset && core != nullptr) core->on_closed(std::nullopt);
  detail::ActiveCall* const call = active(number);
  if (call == nullptr) return;
  // A handler that reads finishes its work after the end. Another one has nobody to work for.
  if (reset) {
    call->request_stop(ErrorCode::cancelled, Initiator::peer, reset_by_caller);
  } else if (!reads) {
    call->request_stop(ErrorCode::cancelled, Initiator::peer, "the caller has closed the stream");
  }
}

// Ends the stream and asks the handler to stop. Its answer is not sent.
void BaiduStdServerSession::reset_stream(std::uint32_t number, StreamEnd& stream, const Error& why) {
  send_stream_frame(stream.frame(StreamFrameType::reset));
  stream.peer_closed = true;
  stream.drop_parts();
  const ServerCall& state = *states_.find(number);
  if (state.stream_of != 0 || !state.further.empty()) return stream.core->on_closed(why);
  if (detail::ActiveCall* const call = active(number)) call->request_stop(why);
}

// ---- Sending ----

std::byte* BaiduStdServerSession::begin_item(std::uint32_t call, const codec::EncodedSize& size) {
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
  return write_stream_meta(write_header(at, {BaiduStdFrameKind::stream, static_cast<std::uint32_t>(meta_size + bytes),
                                             static_cast<std::uint32_t>(meta_size)}),
                           meta);
}

void BaiduStdServerSession::end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  commit(item_head_bytes_);
  if (!pieces.empty()) {
    borrow(pieces, owner);
  } else if (owner != nullptr) {
    owner->on_send_complete();
  }
}

// The protocol of bRPC ends both directions together, when the call ends.
void BaiduStdServerSession::send_end(std::uint32_t call) {
  ServerCall* const state = states_.find(call);
  if (state == nullptr || closed() || state->stream->peer_closed || !state->stream->extended) return;
  if (!state->stream->open) send_opening_reply(*state);
  send_stream_frame(state->stream->frame(StreamFrameType::end));
}

// Called for each item that the handler has read, since the stream grants each one again.
void BaiduStdServerSession::send_credit(std::uint32_t call, std::uint32_t bytes) {
  ServerCall* const state = states_.find(call);
  if (state == nullptr || closed() || !state->stream->count_consumed(bytes)) return;
  StreamFrameMeta feedback = state->stream->frame(StreamFrameType::feedback);
  feedback.consumed_size = state->stream->consumed;
  send_stream_frame(feedback);
}

void BaiduStdServerSession::on_drained() { rpc::wake_writers(writers_); }

}  // namespace hawser::protocol::baidu_std
