#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "protocol/baidu_std/client_session.h"

// The streams of a call beside its first: extra_stream_ids.
namespace hawser::protocol::baidu_std {

using detail::CallOperation;
using wire::CallId;

void BaiduStdClientSession::begin_further(StreamSettings& settings, CallId id, const Stream& first,
                                          rpc::FurtherStreams& operation) {
  rpc::FurtherStreams::Cores cores;
  for (std::size_t i = 0; i < operation.further_streams(); ++i) {
    auto stream = std::make_unique<FurtherStream>(*this);
    stream->id = static_cast<std::int64_t>(++serial_) << 32 | id.number();
    stream->call = id.number();
    stream->incoming = first.incoming;
    stream->extended = first.extended;
    stream->core = make_core(*stream, id.number());
    settings.extra_ids.push_back(stream->id);
    cores.push_back(stream->core);
    const FurtherKey key = further_key(stream->id);
    further_.emplace(key, std::move(stream));
  }
  operation.set_further(std::move(cores));
}

std::vector<BaiduStdClientSession::FurtherStream*> BaiduStdClientSession::further_of(CallId id,
                                                                                     const Stream& first) const {
  std::vector<FurtherStream*> streams;
  for (auto each = further_.lower_bound({id.number(), 0}); each != further_.end(); ++each) {
    if (each->first.first != id.number()) break;
    streams.push_back(each->second.get());
  }
  // The serial number may have wrapped around since the call was begun.
  const std::uint32_t serial = further_key(first.id).second;
  std::ranges::sort(streams, {}, [&](const FurtherStream* one) { return further_key(one->id).second - serial; });
  return streams;
}

void BaiduStdClientSession::open_further(const std::vector<FurtherStream*>& streams, const Stream& first,
                                         const StreamSettings& settings) {
  for (std::size_t i = 0; i < streams.size(); ++i) {
    FurtherStream& stream = *streams[i];
    stream.peer_id = settings.extra_ids[i];
    stream.peer_needs_feedback = first.peer_needs_feedback;
    stream.extended = first.extended;
    stream.peer_reads = first.peer_reads;
    stream.open = true;
    check(stream.core->on_credit(std::max(options_.stream_buffer_bytes, std::uint32_t{1})));
    if (stream.end_wanted) send_end_of(stream);
  }
}

void BaiduStdClientSession::on_further_frame(FurtherStream& stream, const StreamFrameMeta& meta,
                                             const ReceivedFrame& frame) {
  if (!stream.open && meta.type != StreamFrameType::reset) {
    return protocol_error("a frame for a stream precedes the reply that opens it");
  }
  switch (meta.type) {
    case StreamFrameType::data: {
      if (!stream.incoming) {
        return end_further(stream, Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                                                  "the server writes to a stream that this call does not read"));
      }
      Result<std::optional<StreamEnd::Item>> item =
          stream.take_data(meta, frame, stream_account_, frame_bytes_max_, receive_limit());
      if (!item) return end_further(stream, item.error());
      if (*item) check(stream.core->on_item(std::move(**item)));
      return;
    }
    case StreamFrameType::close: stream.peer_closed = true; return end_further(stream, std::nullopt);
    case StreamFrameType::reset:
      stream.peer_closed = true;
      return end_further(
          stream, Error::of_call(Initiator::peer, ErrorCode::internal, "the server has reset a stream of this call"));
    case StreamFrameType::feedback: return check(stream.take_feedback(meta.consumed_size));
    case StreamFrameType::end: return check(stream.take_end());
    case StreamFrameType::unknown: return;
  }
}

void BaiduStdClientSession::end_further(FurtherStream& stream, const std::optional<Error>& error) {
  const CallId call = CallId::from_number(stream.call);
  CallOperation* const operation = calls_.find(call).call;
  // A stream that ends before the reply leaves nothing for it to open.
  if (!stream.open && operation != nullptr) return finish(*operation, error);
  const auto node = further_.extract(further_key(stream.id));
  reset_at_peer(stream);
  stream.core->on_closed(error);
  stream.core->end_charges();
  const Stream* const first = operation == nullptr ? nullptr : stream_of(call);
  if (first != nullptr && first->peer_closed && !has_further(call)) finish(*operation, std::nullopt);
}

void BaiduStdClientSession::end_first(CallOperation& operation, Stream& stream, std::optional<Error> error) {
  stream.peer_closed = true;
  stream.drop_parts();
  if (!stream.open || !has_further(CallId::from_number(operation.id()))) return finish(operation, std::move(error));
  stream.core->on_closed(error);
}

void BaiduStdClientSession::reset_late(const StreamFrameMeta& meta, const ReceivedFrame& frame) {
  if (unopened_.erase(meta.stream_id) == 0 || meta.type != StreamFrameType::data) return;
  const Result<std::optional<FrameHeader>> header =
      parse_header(frame.data, {frame_bytes_max_, FrameReceiver::short_frame_bytes_max});
  if (!header || !*header || FrameHeader::bytes + (*header)->meta_bytes > frame.data.size()) return;
  const Result<RpcMeta> reply = parse_meta(frame.data.subspan(FrameHeader::bytes, (*header)->meta_bytes));
  if (!reply || !reply->stream) return;
  reset_extra(*reply->stream, meta.stream_id);
}

void BaiduStdClientSession::reset_extra(const StreamSettings& settings, std::int64_t from) {
  for (const std::int64_t id : settings.extra_ids) {
    send_stream_frame({.stream_id = id, .source_stream_id = from, .type = StreamFrameType::reset});
  }
}

bool BaiduStdClientSession::has_further(CallId id) const noexcept {
  const auto first = further_.lower_bound({id.number(), 0});
  return first != further_.end() && first->first.first == id.number();
}

void BaiduStdClientSession::drop_further(CallId id, const std::optional<Error>& error) noexcept {
  for (auto next = further_.lower_bound({id.number(), 0}); next != further_.end();) {
    if (next->first.first != id.number()) return;
    const std::unique_ptr<FurtherStream> stream = std::move(next->second);
    next = further_.erase(next);
    reset_at_peer(*stream);
    try {
      stream->core->on_closed(error);
    } catch (const std::bad_alloc&) {
      stream->core->on_closed(std::nullopt);
    }
    stream->core->end_charges();
  }
}

std::string BaiduStdClientSession::receive_limit() const {
  return "stream_receive_bytes_max (" + count_text(options_.stream_receive_bytes_max, "byte") +
         "): read the items sooner, or raise it";
}

}  // namespace hawser::protocol::baidu_std
