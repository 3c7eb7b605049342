#include <algorithm>
#include <new>
#include <utility>

#include "base/decimal_text.h"
#include "protocol/baidu_std/client_session.h"

// The streams of a client's calls: frames with the magic STRM.
namespace hawser::protocol::baidu_std {

using detail::CallOperation;
using wire::CallId;

namespace {

Error reset_by_server() {
  return Error::of_call(Initiator::peer, ErrorCode::internal, "the server has reset the stream of this call");
}

}  // namespace

BaiduStdClientSession::Stream* BaiduStdClientSession::open_stream(std::uint32_t call) noexcept {
  const CallId id = CallId::from_number(call);
  return stream_.closed() || calls_.find(id).call == nullptr ? nullptr : stream_of(id);
}

// Returns the settings for the request.
StreamSettings BaiduStdClientSession::begin_stream(CallId id, CallOperation& operation) {
  auto stream = std::make_unique<Stream>();
  stream->id = correlation_id(id);
  stream->incoming = operation.request().streams_out;
  stream->extended = true;
  stream->core = make_core(*this, id.number());
  if (streams_.size() <= id.slot()) streams_.resize(id.slot() + 1UZ);
  operation.set_stream(stream->core);
  StreamSettings settings = stream->settings(operation.request().streams_in);
  auto* const several = dynamic_cast<rpc::FurtherStreams*>(&operation);
  if (several != nullptr && several->further_streams() != 0) begin_further(settings, id, *stream, *several);
  streams_[id.slot()] = std::move(stream);
  return settings;
}

std::shared_ptr<detail::StreamCore> BaiduStdClientSession::make_core(detail::StreamChannel& channel,
                                                                     std::uint32_t call) {
  // Nothing can be written before the stream is open. The peer decides how much it has outstanding, so the window does
  // not bound the items that are stored: their memory is charged. Each item that is read is granted again, which
  // send_credit() counts.
  const detail::StreamCore::Flow flow{.send_credit = 0, .window = UINT32_MAX, .item_overhead = 0, .grant_bytes_min = 1};
  return std::make_shared<detail::StreamCore>(channel, call, flow);
}

void BaiduStdClientSession::send_stream_frame(const StreamFrameMeta& meta) {
  const std::size_t size = stream_meta_bytes(meta);
  std::byte* const at = stream_.queue().reserve(FrameHeader::bytes + size);
  write_stream_meta(
      write_header(at, {BaiduStdFrameKind::stream, static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(size)}),
      meta);
  committed_ += FrameHeader::bytes + size;
  commit(FrameHeader::bytes + size);
}

void BaiduStdClientSession::close_call(CallId id) noexcept {
  const bool was_full = calls_.full();
  calls_.close(id);
  last_used_ = loop_.now();
  if (was_full) [[unlikely]]
    owner_.on_place();
}

void BaiduStdClientSession::forget(CallId id, const std::optional<Error>& error) noexcept {
  close_call(id);
  if (id.slot() < streams_.size() && streams_[id.slot()] != nullptr) {
    const std::unique_ptr<Stream> stream = std::move(streams_[id.slot()]);
    // The Reader may outlive this session, and with it the account.
    stream->core->end_charges();
    reset_at_peer(*stream);
    try {
      const bool late = stream->awaits_reply && !stream_.closed() && has_further(id);
      if (late && unopened_.size() < unopened_max) unopened_.insert(stream->id);
    } catch (const std::bad_alloc&) {
      // The server's streams end with the connection.
    }
  }
  if (!further_.empty()) drop_further(id, error);
}

// A stream that is not open yet is reset when the reply that opens it arrives.
void BaiduStdClientSession::reset_at_peer(const Stream& stream) noexcept {
  if (!stream.open || stream.peer_closed || stream_.closed()) return;
  try {
    send_stream_frame(stream.frame(StreamFrameType::reset));
  } catch (const std::bad_alloc&) {
    // The next frame of the stream is answered by a reset.
  }
}

void BaiduStdClientSession::finish(CallOperation& operation, std::optional<Error> error) {
  if (detail::StreamCore* const core = operation.stream()) core->on_closed(error);
  forget(CallId::from_number(operation.id()), error);
  if (error) {
    operation.complete(loop_, std::move(*error));
  } else {
    operation.complete(loop_);
  }
}

void BaiduStdClientSession::check(const Result<void>& status) {
  if (!status) protocol_error(status.error().text);
}

// ---- Receiving ----

void BaiduStdClientSession::on_stream_frame(const ReceivedFrame& frame) {
  const Result<StreamFrameMeta> parsed = parse_stream_meta(frame.meta);
  if (!parsed) return protocol_error(parsed.error().text);
  const StreamFrameMeta& meta = *parsed;
  if (meta.type == StreamFrameType::unknown) return protocol_error(StreamEnd::unknown_frame);
  const CallId id = CallId::from_number(static_cast<std::uint32_t>(meta.stream_id));
  CallOperation* const operation = calls_.find(id).call;
  Stream* const stream = operation == nullptr || correlation_id(id) != meta.stream_id ? nullptr : stream_of(id);
  if (stream == nullptr) {
    if (const auto found = further_.find(further_key(meta.stream_id)); found != further_.end()) {
      return on_further_frame(*found->second, meta, frame);
    }
    // The peer learns that the stream has ended, unless it has opened none or does not read what it receives. Frames
    // that end or acknowledge are not answered.
    constexpr std::int64_t no_stream = -1;
    if (!unopened_.empty()) reset_late(meta, frame);
    if (meta.type == StreamFrameType::data && meta.source_stream_id != no_stream && has_room()) {
      send_stream_frame({meta.source_stream_id, meta.stream_id, StreamFrameType::reset});
    }
    return;
  }
  if (!stream->open && meta.type != StreamFrameType::reset) return on_opening_frame(*operation, *stream, meta, frame);
  switch (meta.type) {
    case StreamFrameType::data: return on_stream_data(*operation, *stream, meta, frame);
    case StreamFrameType::close: return end_first(*operation, *stream, std::nullopt);
    case StreamFrameType::reset:
      stream->peer_closed = true;
      if (meta.error_code != 0) return finish(*operation, error_of_reply(*operation, meta.error_code, meta.error_text));
      return end_first(*operation, *stream, reset_by_server());
    case StreamFrameType::feedback: return check(stream->take_feedback(meta.consumed_size));
    case StreamFrameType::end: return check(stream->take_end());
    case StreamFrameType::unknown: return;
  }
}

// The first frame of a stream carries the whole reply.
void BaiduStdClientSession::on_opening_frame(CallOperation& operation, Stream& stream, const StreamFrameMeta& meta,
                                             const ReceivedFrame& frame) {
  const FrameLimits limits{frame_bytes_max_, FrameReceiver::short_frame_bytes_max};
  const Result<std::optional<FrameHeader>> header = parse_header(frame.data, limits);
  if (meta.type != StreamFrameType::data || meta.has_continuation || !header || !*header ||
      (*header)->kind != BaiduStdFrameKind::rpc || FrameHeader::bytes + (*header)->body_bytes != frame.data.size()) {
    return protocol_error("the first STRM frame of a stream does not carry the reply to the request that opens it");
  }
  const Bytes reply = frame.data.subspan(FrameHeader::bytes);
  const ReceivedFrame inner{.kind = BaiduStdFrameKind::rpc,
                            .meta = reply.first((*header)->meta_bytes),
                            .data = reply.subspan((*header)->meta_bytes),
                            .block = frame.block};
  const Result<RpcMeta> reply_meta = parse_meta(inner.meta);
  if (!reply_meta) return protocol_error(reply_meta.error().text);
  if (reply_meta->request) return protocol_error("a server has sent a request");
  if (reply_meta->correlation_id != stream.id) {
    return protocol_error("the first STRM frame of a stream carries the reply to another request");
  }
  on_opened(operation, stream, *reply_meta, inner);
}

void BaiduStdClientSession::on_opened(CallOperation& operation, Stream& stream, const RpcMeta& meta,
                                      const ReceivedFrame& frame) {
  stream.awaits_reply = false;
  if (meta.response && meta.response->error_code != 0) {
    return finish(operation, error_of_reply(operation, meta.response->error_code, meta.response->error_text));
  }
  const auto failed = [&](ErrorCode code, std::string text) {
    finish(operation, Error::of_call(Initiator::peer, code, std::move(text)));
  };
  const std::string name(operation.request().name);
  if (!meta.stream) {
    return failed(ErrorCode::signature_mismatch,
                  "the server has answered '" + name +
                      "' without accepting the stream: the method has no stream there, so use call()");
  }
  stream.peer_id = meta.stream->stream_id;
  stream.peer_needs_feedback = meta.stream->need_feedback;
  stream.extended = meta.stream->extended;
  stream.open = true;
  stream.peer_reads = meta.stream->writable;
  if (!further_.empty() || !meta.stream->extra_ids.empty()) {
    const std::vector<FurtherStream*> further = further_of(CallId::from_number(operation.id()), stream);
    if (meta.stream->extra_ids.size() != further.size()) {
      reset_extra(*meta.stream, stream.id);
      return failed(ErrorCode::protocol_error, "the server has accepted " +
                                                   std::to_string(meta.stream->extra_ids.size() + 1) + " of the " +
                                                   count_text(further.size() + 1, "stream") + " of '" + name + "'");
    }
    open_further(further, stream, *meta.stream);
  }
  // A server of bRPC gives the result here. This library's server sends it as the last message, unless it is empty.
  if (Result<void> decoded = decode_reply(operation, meta, frame); !decoded) {
    return finish(operation, std::move(decoded.error()));
  }
  check(stream.core->on_credit(std::max(options_.stream_buffer_bytes, std::uint32_t{1})));
  if (stream.end_wanted) send_end(operation.id());
}

void BaiduStdClientSession::on_stream_data(CallOperation& operation, Stream& stream, const StreamFrameMeta& meta,
                                           const ReceivedFrame& frame) {
  const bool result = meta.result && stream.extended;
  if (!result && !stream.incoming) {
    return finish(operation, Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                                            "the server writes to a stream that this call does not read"));
  }
  Result<std::optional<StreamEnd::Item>> item =
      stream.take_data(meta, frame, stream_account_, frame_bytes_max_, receive_limit());
  if (!item) return finish(operation, std::move(item.error()));
  if (!*item) return;
  if (!result) return check(stream.core->on_item(std::move(**item)));
  const Buffer& body = (*item)->body;
  operation.decode({.body = body.bytes(),
                    .payload = {},
                    .attachment = {},
                    .metadata = {},
                    .head_block = body.block(),
                    .payload_block = body.block(),
                    .decode_limits = &options_.client.decode_limits});
}

// ---- Sending ----

std::byte* BaiduStdClientSession::begin_item(std::uint32_t call, const codec::EncodedSize& size) {
  Stream* const stream = open_stream(call);
  if (stream == nullptr) return nullptr;
  if (stream->open && !stream->peer_reads) {
    CallOperation& operation = *calls_.find(CallId::from_number(call)).call;
    finish(operation, Error::of_call(Initiator::peer, ErrorCode::signature_mismatch,
                                     "the server does not read the stream that '" +
                                         std::string(operation.request().name) + "' sends"));
    return nullptr;
  }
  return begin_item_of(*stream, size);
}

std::byte* BaiduStdClientSession::begin_item_of(Stream& stream, const codec::EncodedSize& size) {
  const std::size_t bytes = size.body + size.payload;
  if (stream_.closed() || !stream.open || stream.close_sent || !stream.peer_reads || size.too_large ||
      bytes + FrameReceiver::short_frame_bytes_max > frame_bytes_max_) {
    return nullptr;
  }
  stream.produced += static_cast<std::int64_t>(bytes);
  const StreamFrameMeta meta = stream.frame(StreamFrameType::data);
  const std::size_t meta_size = stream_meta_bytes(meta);
  item_head_bytes_ = FrameHeader::bytes + meta_size + size.body;
  committed_ += item_head_bytes_ + size.payload;
  std::byte* const at = stream_.queue().reserve(item_head_bytes_);
  return write_stream_meta(write_header(at, {BaiduStdFrameKind::stream, static_cast<std::uint32_t>(meta_size + bytes),
                                             static_cast<std::uint32_t>(meta_size)}),
                           meta);
}

void BaiduStdClientSession::end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  stream_.queue().commit(item_head_bytes_);
  if (!pieces.empty()) {
    stream_.queue().borrow(pieces, owner);
  } else if (owner != nullptr) {
    owner->on_send_complete();
  }
  commit(0);
}

void BaiduStdClientSession::send_end(std::uint32_t call) {
  if (Stream* const stream = open_stream(call)) send_end_of(*stream);
}

void BaiduStdClientSession::send_end_of(Stream& stream) {
  if (stream_.closed() || stream.close_sent) return;
  if (!stream.open) {
    stream.end_wanted = true;
    return;
  }
  // bRPC knows the end of both directions only. Its server sends what it has written before, and CLOSE.
  stream.close_sent = true;
  send_stream_frame(stream.frame(stream.extended ? StreamFrameType::end : StreamFrameType::close));
}

void BaiduStdClientSession::send_credit(std::uint32_t call, std::uint32_t bytes) {
  if (Stream* const stream = open_stream(call)) send_credit_of(*stream, bytes);
}

void BaiduStdClientSession::send_credit_of(Stream& stream, std::uint32_t bytes) {
  if (stream_.closed() || !stream.count_consumed(bytes)) return;
  StreamFrameMeta feedback = stream.frame(StreamFrameType::feedback);
  feedback.consumed_size = stream.consumed;
  send_stream_frame(feedback);
}

}  // namespace hawser::protocol::baidu_std
