#include "protocol/baidu_std/client_session.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/crc32c.h"
#include "hawser/detail/const_buffers.h"
#include "pipe/null_sink.h"
#include "protocol/baidu_std/compression.h"
#include "protocol/baidu_std/error_codes.h"
#include "rpc/client/client_session.h"
#include "rpc/session/wake_writers.h"
#include "transport/common/gather.h"
#include "wire/metadata.h"

namespace hawser::protocol::baidu_std {

using detail::CallOperation;
using wire::CallId;

namespace {

// Moves the fields of RpcRequestMeta from `given` to `request`; the others become user_fields.
Metadata user_fields(const Metadata& given, RequestMeta& request) {
  Metadata fields;
  for (const auto& [key, value] : given) {
    std::int64_t number = 0;
    if (key == "x-request-id") {
      request.request_id = value;
    } else if (key == "log-id" &&
               std::from_chars(value.data(), value.data() + value.size(), number).ptr == value.data() + value.size()) {
      request.log_id = number;
    } else {
      fields.emplace_back(key, value);
    }
  }
  return fields;
}

}  // namespace

BaiduStdClientSession::BaiduStdClientSession(Loop& loop, std::unique_ptr<transport::Stream> stream,
                                             BaiduStdClientOptions options, Owner& owner)
    : loop_(loop),
      options_(std::move(options)),
      owner_(owner),
      frame_bytes_max_(std::min<std::size_t>(options_.client.message_bytes_max, INT32_MAX)),
      stream_(std::move(stream)),
      receiver_(frame_bytes_max_, nullptr),
      calls_(options_.client.calls_in_flight_max),
      last_used_(loop.now()),
      stream_budget_(options_.stream_receive_bytes_max, options_.stream_receive_bytes_max),
      stream_account_(&stream_budget_) {}

BaiduStdClientSession::~BaiduStdClientSession() {
  loop_.remove_tick_end(*this);
  stream_.close_now();
}

void BaiduStdClientSession::begin() { stream_->start(loop_, *this); }

// ---- Requests ----

void BaiduStdClientSession::refuse(CallOperation& operation, ErrorCode code, std::string text) {
  operation.complete(loop_, Error::of_call(code, std::move(text)));
}

void BaiduStdClientSession::start(CallOperation& operation) {
  if (may_send(operation)) send(operation);
}

bool BaiduStdClientSession::may_send(CallOperation& operation) {
  if (Loop* const here = Loop::current(); here != &loop_ && here != nullptr) [[unlikely]] {
    refuse(operation, ErrorCode::invalid_argument,
           "this client is connected on another loop than the one that runs here: use it on its own loop, or use "
           "another client here");
  } else if (stream_.closed()) {
    refuse(operation, ErrorCode::not_sent, "the connection has ended");
  } else if (operation.request().name.find('/') == std::string_view::npos) {
    refuse(
        operation, ErrorCode::invalid_argument,
        "'" + std::string(operation.request().name) + "' is not a name of baidu_std: it needs package.Service/Method");
  } else if (operation.request().size.too_large) {
    refuse(operation, ErrorCode::limit_exceeded, "the arguments can't be encoded: they are too large");
  } else if (calls_.full()) {
    refuse(operation, ErrorCode::overloaded,
           "the connection has " + count_text(calls_.calls_max(), "call") +
               " in flight already (calls_in_flight_max): wait for replies, or raise it");
  } else if (stream_.backlog() > options_.client.send_backlog_bytes_max) {
    refuse(operation, ErrorCode::overloaded,
           "send_backlog_bytes_max bytes of requests wait to be sent: the server or the network is slower than the "
           "calls");
  } else {
    return true;
  }
  return false;
}

void BaiduStdClientSession::send(CallOperation& operation) {
  const Time deadline = rpc::call_deadline(loop_, operation.request(), options_.client.call_timeout);
  std::optional<CallId> id;
  try {
    id = calls_.open(operation);
    if (id->slot() >= serials_.size()) serials_.resize(id->slot() + 1UZ);
    serials_[id->slot()] = ++serial_;
    last_used_ = loop_.now();
    send_as(*id, operation, deadline);
  } catch (const std::exception&) {
    // Nothing was sent. The table must not keep the operation, because its caller may destroy it.
    if (id) forget(*id);
    refuse(operation, ErrorCode::internal, "out of memory while the request was encoded; it was not sent");
  }
}

void BaiduStdClientSession::send_as(CallId id, CallOperation& operation, Time deadline) {
  const CallOperation::Request& request = operation.request();
  const CallOptions* const options = request.options;
  const Bytes attachment = options != nullptr ? options->attachment : Bytes();
  const std::size_t slash = request.name.rfind('/');
  RpcMeta meta{
      .request = RequestMeta{.service = request.name.substr(0, slash), .method = request.name.substr(slash + 1)},
      .correlation_id = correlation_id(id),
      .attachment_size = static_cast<std::int32_t>(attachment.size()),
      .checksum_type = options_.client.checksum ? 1 : 0,
      .checksum_with_attachment = options_.client.checksum && !attachment.empty()};
  if (deadline != Time::max()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - loop_.now()).count();
    meta.request->timeout_ms = static_cast<std::int32_t>(std::clamp<std::int64_t>(left, 1, INT32_MAX));
  }
  if (request.streams) [[unlikely]]
    meta.stream = begin_stream(id, operation);
  if (!first_sent_) [[unlikely]]
    meta.authentication_data = options_.credential;
  Metadata fields;
  if (options != nullptr && !options->metadata.empty()) [[unlikely]]
    fields = user_fields(options->metadata, *meta.request);
  const std::size_t data_bytes = request.size.body + request.size.payload + attachment.size();
  const std::size_t meta_size = meta_bytes(meta, &fields);
  if (meta_size + data_bytes > frame_bytes_max_ || meta_size > FrameReceiver::short_frame_bytes_max) [[unlikely]] {
    forget(id);
    unopened_.erase(meta.correlation_id);  // No reply will come.
    return refuse(operation, ErrorCode::limit_exceeded,
                  "the request of " + count_text(meta_size + data_bytes, "byte") + ", " + std::to_string(meta_size) +
                      " of them in its meta, exceeds message_bytes_max (" + std::to_string(frame_bytes_max_) +
                      ") or the 32 KiB of a meta");
  }
  if (options_.compression != BaiduStdCompression::none &&
      request.size.body + request.size.payload >= options_.compress_bytes_min) [[unlikely]] {
    operation.begin(*this, id.number(), deadline);
    send_compressed(meta, &fields, operation, attachment);
    operation.sent_mark = committed_;
    first_sent_ = true;
    return;
  }
  const std::size_t head_bytes = FrameHeader::bytes + meta_size + request.size.body;
  std::byte* const head = stream_.queue().reserve(head_bytes);
  write_header(head, {BaiduStdFrameKind::rpc, static_cast<std::uint32_t>(meta_size + data_bytes),
                      static_cast<std::uint32_t>(meta_size)});
  std::byte* const checksum = write_meta(head + FrameHeader::bytes, meta, &fields);
  std::byte* const body = head + FrameHeader::bytes + meta_size;
  detail::ConstBuffers pieces(request.size.pieces);
  operation.encode(body, pieces.data());
  if (!attachment.empty()) pieces.push({attachment.data(), attachment.size()});
  if (meta.checksum_type != 0) [[unlikely]] {
    std::uint32_t crc = crc32c(0, Bytes(body, request.size.body));
    for (const ConstBuffer& piece : pieces.span()) crc = crc32c(crc, Bytes(piece.data, piece.size));
    const std::uint32_t value = __builtin_bswap32(mask_crc(crc));
    std::memcpy(checksum, &value, checksum_bytes);
  }
  operation.begin(*this, id.number(), deadline);
  first_sent_ = true;
  committed_ += FrameHeader::bytes + meta_size + data_bytes;
  operation.sent_mark = committed_;
  stream_.queue().commit(head_bytes);
  if (data_bytes != request.size.body) {
    operation.loan();
    stream_.queue().borrow(pieces.span(), &operation);
  }
  commit(0);
}

void BaiduStdClientSession::send_compressed(RpcMeta& meta, const Metadata* fields, CallOperation& operation,
                                            Bytes attachment) {
  const codec::EncodedSize size = operation.request().size;
  Buffer plain = Buffer::allocate(std::max<std::size_t>(size.body + size.payload, 1));
  detail::ConstBuffers pieces(size.pieces);
  operation.encode(plain.mutable_data(), pieces.data());
  transport::gather(plain.mutable_data() + size.body, pieces.span());
  const auto type = static_cast<Compression>(options_.compression);
  Result<Buffer> packed = compress(type, plain.bytes().first(size.body + size.payload));
  if (!packed) throw std::bad_alloc();
  meta.compress_type = static_cast<std::int32_t>(type);
  const std::size_t meta_size = meta_bytes(meta, fields);
  const std::size_t data_bytes = packed->size() + attachment.size();
  const std::size_t bytes = FrameHeader::bytes + meta_size + data_bytes;
  std::byte* const head = stream_.queue().reserve(bytes);
  write_header(head, {BaiduStdFrameKind::rpc, static_cast<std::uint32_t>(meta_size + data_bytes),
                      static_cast<std::uint32_t>(meta_size)});
  std::byte* const checksum = write_meta(head + FrameHeader::bytes, meta, fields);
  std::byte* const data = head + FrameHeader::bytes + meta_size;
  std::memcpy(data, packed->data(), packed->size());
  if (!attachment.empty()) std::memcpy(data + packed->size(), attachment.data(), attachment.size());
  if (meta.checksum_type != 0) {
    const std::uint32_t value = __builtin_bswap32(mask_crc(crc32c(0, Bytes(data, data_bytes))));
    std::memcpy(checksum, &value, checksum_bytes);
  }
  committed_ += bytes;
  commit(bytes);
}

void BaiduStdClientSession::abandon(CallOperation& operation) noexcept { forget(CallId::from_number(operation.id())); }

void BaiduStdClientSession::cancel(std::uint32_t call, const Error& error) {
  const auto found = calls_.find(CallId::from_number(call));
  if (found.call != nullptr) finish(*found.call, error);
}

// ---- Sending ----

void BaiduStdClientSession::commit(std::size_t bytes) {
  if (bytes != 0) stream_.queue().commit(bytes);
  if (stream_.early()) send_queued();
  if (!stream_.closed() && !queued() && stream_.backlog() != 0) loop_.at_tick_end(*this);
}

void BaiduStdClientSession::send_queued() {
  if (stream_.sending()) return;
  stream_.send();
  if (writers_.linked() && has_room()) rpc::wake_writers(writers_);
}

void BaiduStdClientSession::sendable(std::size_t bytes) {
  if (stream_.closed()) return;
  stream_.sendable(bytes);
  send_queued();
}

// ---- Receiving ----

MutableBytes BaiduStdClientSession::receive_space() {
  direct_ = false;
  if (stream_.closed()) return pipe::discard_buffer();
  try {
    if (block_.empty()) {
      const MutableBytes direct = receiver_.direct_space();
      direct_ = !direct.empty();
      if (direct_) return direct;
    }
    if (!block_.fit(block_.held() + receive_block_bytes / 4)) block_.replace(receive_block_bytes);
  } catch (const std::bad_alloc&) {
    end(Error::of_connection(ErrorCode::internal, "no memory to receive"));
    return pipe::discard_buffer();
  }
  return block_.space();
}

void BaiduStdClientSession::received(std::size_t bytes) {
  if (stream_.closed()) return;
  const std::shared_ptr<BaiduStdClientSession> alive = shared_from_this();
  try {
    if (bytes == 0) return block_.park();
    if (std::exchange(direct_, false)) {
      ReceivedFrame frame;
      if (receiver_.direct_received(bytes, frame)) on_frame(frame);
    } else {
      block_.received(bytes);
      take_all();
    }
  } catch (const std::bad_alloc&) {
    taking_ = false;
    end(Error::of_connection(ErrorCode::internal, "no memory to receive"));
  }
}

void BaiduStdClientSession::take_all() {
  taking_ = true;
  while (!block_.empty() && !stream_.closed()) {
    ReceivedFrame frame;
    bool complete = false;
    const Result<std::size_t> taken = receiver_.take(block_.bytes(), *block_.block(), frame, complete);
    if (!taken) {
      protocol_error(taken.error().text);
      break;
    }
    if (*taken == 0) break;
    block_.take(*taken);
    if (complete) on_frame(frame);
  }
  taking_ = false;
  if (stream_.closed() || block_.empty()) block_.drop();
}

void BaiduStdClientSession::on_frame(const ReceivedFrame& frame) {
  if (frame.kind == BaiduStdFrameKind::stream) [[unlikely]]
    return on_stream_frame(frame);
  const Result<RpcMeta> meta = parse_meta(frame.meta);
  if (!meta) return protocol_error(meta.error().text);
  if (meta->request) return protocol_error("a server has sent a request");
  const CallId id = CallId::from_number(static_cast<std::uint32_t>(meta->correlation_id));
  const auto found = calls_.find(id);
  // A late answer, or one that no call waits for.
  if (found.call == nullptr || correlation_id(id) != meta->correlation_id) {
    unopened_.erase(meta->correlation_id);
    return;
  }
  if (Stream* const stream = stream_of(id)) [[unlikely]] {
    if (stream->open) return protocol_error("a second reply to a request that has opened a stream");
    return on_opened(*found.call, *stream, *meta, frame);
  }
  close_call(id);
  on_reply(*found.call, *meta, frame);
}

Error BaiduStdClientSession::error_of_reply(const CallOperation& operation, std::int32_t code, std::string_view text) {
  Error error = Error::of_call(Initiator::peer, error_code_of(code), std::string(text));
  if (error.code == ErrorCode::application) error.application_code = code;
  if (error.code == ErrorCode::unknown_method) {
    error.text = "'" + std::string(operation.request().name) + "': " + error.text;
  }
  return error;
}

void BaiduStdClientSession::on_reply(CallOperation& operation, const RpcMeta& meta, const ReceivedFrame& frame) {
  if (meta.response && meta.response->error_code != 0) [[unlikely]] {
    return operation.complete(loop_, error_of_reply(operation, meta.response->error_code, meta.response->error_text));
  }
  Result<void> decoded = decode_reply(operation, meta, frame);
  if (!decoded) return operation.complete(loop_, std::move(decoded.error()));
  operation.complete(loop_);
}

Result<void> BaiduStdClientSession::decode_reply(CallOperation& operation, const RpcMeta& meta,
                                                 const ReceivedFrame& frame) try {
  const auto damaged = [](std::string text) {
    return fail(Error::of_call(Initiator::peer, ErrorCode::protocol_error, std::move(text)));
  };
  if (meta.attachment_size < 0 || static_cast<std::size_t>(meta.attachment_size) > frame.data.size()) {
    return damaged("attachment_size of the reply exceeds its data");
  }
  if (meta.content_type != 0) return damaged("the reply has content_type " + std::to_string(meta.content_type));
  const auto attachment_bytes = static_cast<std::size_t>(meta.attachment_size);
  Bytes body = frame.data.first(frame.data.size() - attachment_bytes);
  Block* body_block = frame.block;
  if (meta.checksum_type == 1) {
    const Bytes covered = meta.checksum_with_attachment ? frame.data : body;
    const std::uint32_t expected = __builtin_bswap32(mask_crc(crc32c(0, covered)));
    if (meta.checksum_value.size() != checksum_bytes ||
        std::memcmp(meta.checksum_value.data(), &expected, checksum_bytes) != 0) {
      return damaged("the checksum of the reply does not match: the reply was damaged on its way");
    }
  }
  Buffer plain;
  if (meta.compress_type != 0) {
    TRY(Buffer&& data, decompress(static_cast<Compression>(meta.compress_type), body, frame_bytes_max_));
    plain = std::move(data);
    body = plain.bytes();
    body_block = plain.block();
  }
  Buffer joined;
  Bytes metadata;
  if (meta.user_fields != 0) {
    // Metadata lies directly before the body.
    wire::MetadataSize size;
    read_user_fields(frame.meta, [&](std::string_view key, std::string_view value) { size.add(key, value); });
    if (!size.fits()) return damaged("user_fields of the reply: " + size.too_large_text());
    joined = Buffer::allocate(size.bytes() + body.size());
    std::byte* at = joined.mutable_data();
    read_user_fields(frame.meta, [&](std::string_view key, std::string_view value) {
      at = wire::write_metadata_entry(at, key, value);
    });
    if (!body.empty()) std::memcpy(at, body.data(), body.size());
    metadata = joined.bytes().first(size.bytes());
    body = joined.bytes().subspan(size.bytes());
    body_block = joined.block();
  }
  operation.decode({.body = body,
                    .payload = {},
                    .attachment = frame.data.last(attachment_bytes),
                    .metadata = MetadataView(metadata),
                    .head_block = body_block,
                    .payload_block = frame.block,
                    .decode_limits = &options_.client.decode_limits});
  return {};
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::internal, "no memory to read the reply");
}

// ---- The end ----

void BaiduStdClientSession::protocol_error(std::string text) {
  end(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, std::move(text)));
}

void BaiduStdClientSession::end(const Error& reason) {
  if (stream_.closed()) return;
  const std::shared_ptr<BaiduStdClientSession> alive = shared_from_this();
  loop_.remove_tick_end(*this);
  stream_.close(loop_);
  std::vector<CallOperation*> open;
  calls_.each_open([&](CallOperation& operation) { open.push_back(&operation); });
  for (CallOperation* const operation : open) {
    // A request that was not sent completely cannot have been executed.
    finish(*operation, rpc::ended_call(stream_.sent() < operation->sent_mark, reason));
  }
  writers_.unlink();
  stream_.queue().clear();
  if (!taking_) block_.drop();
  owner_.on_session_end(reason);
}

}  // namespace hawser::protocol::baidu_std
