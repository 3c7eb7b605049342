#include "protocol/baidu_std/server_session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/decimal_text.h"
#include "hawser/crc32c.h"
#include "protocol/baidu_std/error_codes.h"
#include "wire/metadata.h"

namespace hawser::protocol::baidu_std {
namespace {

constexpr std::size_t error_text_bytes_max = 4096;

// A session that goes away refuses requests until so many checks of the server, which is a second. A client that still
// sends them then has read many refusals.
constexpr unsigned refusing_checks_max = 4;

// The names under which a handler finds the fields of a request among its metadata. They are bRPC's HTTP headers.
constexpr std::string_view log_id_key = "log-id";
constexpr std::string_view request_id_key = "x-request-id";
constexpr std::string_view trace_id_key = "x-bd-trace-id";
constexpr std::string_view span_id_key = "x-bd-span-id";
constexpr std::string_view parent_span_id_key = "x-bd-parent-span-id";

template <class Use>
void read_metadata(const RequestMeta& request, Bytes meta, Use use) {
  const auto number = [&](std::string_view key, const std::optional<std::int64_t>& value) {
    if (value) use(key, std::to_string(*value));
  };
  number(log_id_key, request.log_id);
  if (!request.request_id.empty()) use(request_id_key, request.request_id);
  number(trace_id_key, request.trace_id);
  number(span_id_key, request.span_id);
  number(parent_span_id_key, request.parent_span_id);
  read_user_fields(meta, use);
}

// Returns the fields that the handler sees.
Result<Buffer> collect_metadata(const RpcMeta& parsed, Bytes meta) {
  const RequestMeta& request = *parsed.request;
  if (parsed.user_fields == 0 && !request.log_id && !request.trace_id && !request.span_id && !request.parent_span_id &&
      request.request_id.empty()) [[likely]] {
    return Buffer();
  }
  wire::MetadataSize size;
  read_metadata(request, meta, [&](std::string_view key, std::string_view value) { size.add(key, value); });
  if (!size.fits()) return fail(ErrorCode::limit_exceeded, size.too_large_text());
  Buffer metadata = Buffer::allocate(size.bytes());
  std::byte* at = metadata.mutable_data();
  read_metadata(request, meta,
                [&](std::string_view key, std::string_view value) { at = wire::write_metadata_entry(at, key, value); });
  return metadata;
}

// Returns the masked checksum in the order of the wire.
std::uint32_t wire_checksum(std::uint32_t crc) noexcept { return __builtin_bswap32(mask_crc(crc)); }

std::uint32_t crc_of(std::uint32_t crc, std::span<const ConstBuffer> pieces, std::size_t bytes) noexcept {
  for (const ConstBuffer& piece : pieces) {
    const std::size_t part = std::min(bytes, piece.size);
    crc = crc32c(crc, Bytes(piece.data, part));
    bytes -= part;
  }
  return crc;
}

Error too_long(std::size_t bytes, std::size_t bytes_max) {
  return Error::of_call(ErrorCode::limit_exceeded, "the reply of " + count_text(bytes, "byte") +
                                                       " exceeds message_bytes_max (" + std::to_string(bytes_max) +
                                                       "): raise it or send less");
}

bool is_json(ContentType type) noexcept { return type == ContentType::json || type == ContentType::proto_json; }

// Returns why the method cannot be called with the streams of the request.
std::optional<std::string> fault_of_streams(const RpcMeta& meta, const rpc::Dispatcher::Method& method,
                                            std::size_t streams_per_call_max) {
  const bool streams = method.streams_in || method.streams_out;
  if (streams && !meta.stream) return "this method has a stream: create one for the call (StreamCreate)";
  if (streams && !meta.stream->extra_ids.empty()) {
    return "a call of this method has one stream: send no extra_stream_ids";
  }
  if (meta.stream && (meta.stream->too_many || meta.stream->extra_ids.size() >= streams_per_call_max)) [[unlikely]] {
    return "the call has " + std::string(meta.stream->too_many ? "more than " : "") +
           count_text(meta.stream->extra_ids.size() + 1, "stream") + ": streams_per_call_max of the server is " +
           std::to_string(streams_per_call_max);
  }
  if (method.streams_out && !meta.stream->writable) {
    return "this method writes to the stream: give the stream a handler (writable)";
  }
  return std::nullopt;
}

// Returns why the body of a request is refused. `data`: the body and the attachment.
std::optional<std::string> fault_of_body(const RpcMeta& meta, Bytes data, Bytes body) {
  if (meta.checksum_type != static_cast<std::int32_t>(ChecksumType::none)) [[unlikely]] {
    if (meta.checksum_type != static_cast<std::int32_t>(ChecksumType::crc32c)) {
      return "checksum_type " + std::to_string(meta.checksum_type) + " is not supported";
    }
    const std::uint32_t expected = wire_checksum(crc32c(0, meta.checksum_with_attachment ? data : body));
    if (meta.checksum_value.size() != checksum_bytes ||
        std::memcmp(meta.checksum_value.data(), &expected, checksum_bytes) != 0) {
      return "the checksum does not match: the request was damaged on its way";
    }
  }
  if (meta.compress_type != 0 && !can_compress(meta.compress_type)) [[unlikely]] {
    return "compression " + std::to_string(meta.compress_type) + " is not supported: use none, snappy, gzip or zlib";
  }
  const auto content = static_cast<ContentType>(meta.content_type);
  if (content != ContentType::proto && !is_json(content)) [[unlikely]] {
    return "content_type " + std::to_string(meta.content_type) + " is not supported: send pb or JSON";
  }
  return std::nullopt;
}

}  // namespace

BaiduStdServerSession::BaiduStdServerSession(rpc::PortHost& port_host, std::unique_ptr<transport::Stream> stream,
                                             Bytes first, std::shared_ptr<const BaiduStdOptions> options,
                                             std::shared_ptr<RefusalLines> refusal_lines)
    : ByteSession(port_host, std::move(stream), first),
      options_(std::move(options)),
      refusal_lines_(std::move(refusal_lines)),
      frame_bytes_max_(std::min<std::size_t>(port_host.options.message_bytes_max, INT32_MAX)),
      receiver_(frame_bytes_max_, bounded_account()),
      authenticated_(!options_->verify && !options_->authenticate) {}

BaiduStdServerSession::~BaiduStdServerSession() = default;

// The protocol has no frame for this: requests are refused with ELOGOFF, and the server ends the connection when it has
// been silent. A client that goes on to send requests must not hold the stop: see finish_if_refusing().
void BaiduStdServerSession::go_away() { begin_ending(); }

unsigned BaiduStdServerSession::silent_checks() noexcept {
  const unsigned silent = ByteSession::silent_checks();
  ++refusing_checks_;
  finish_if_refusing();
  return silent;
}

// A request that has begun is refused first.
void BaiduStdServerSession::finish_if_refusing() {
  if (refusing_checks_ < refusing_checks_max || closed() || active_calls() != 0 || converting_ != 0 || receiving())
    return;
  finish();
}

// ---- Requests ----

std::size_t BaiduStdServerSession::take(Bytes bytes, Block& block) {
  ReceivedFrame frame;
  bool complete = false;
  const Result<std::size_t> taken = receiver_.take(bytes, block, frame, complete);
  if (!taken) [[unlikely]] {
    protocol_error(taken.error().text);
    return 0;
  }
  if (complete) [[likely]]
    on_frame(frame);
  if (refusing_checks_ != 0) [[unlikely]]
    finish_if_refusing();
  return *taken;
}

void BaiduStdServerSession::direct_received(std::size_t bytes) {
  ReceivedFrame frame;
  if (receiver_.direct_received(bytes, frame)) on_frame(frame);
  finish_if_refusing();
}

void BaiduStdServerSession::on_frame(const ReceivedFrame& frame) {
  message_received();
  if (frame.kind == BaiduStdFrameKind::stream) return on_stream_frame(frame);
  const Result<RpcMeta> meta = parse_meta(frame.meta);
  if (!meta) [[unlikely]]
    return protocol_error(meta.error().text);
  if (!meta->request) [[unlikely]]
    return protocol_error("a PRPC frame of the client has no request in its meta");
  if (!authenticated_ && !authenticate(*meta, frame)) [[unlikely]]
    return;
  on_request(*meta, frame);
}

const rpc::Dispatcher::Method* BaiduStdServerSession::find_method(const RequestMeta& request) {
  const std::string_view service = request.service;
  const auto named = [&](std::string_view name) {
    return name.size() == service.size() + 1 + request.method.size() && name.starts_with(service) &&
           name[service.size()] == '/' && name.ends_with(request.method);
  };
  if (last_method_ != nullptr && named(last_method_->name)) [[likely]]
    return last_method_;
  std::string name(service);
  name += '/';
  name += request.method;
  const rpc::Dispatcher::Method* found = host().dispatcher.find(std::string_view(name));
  if (found == nullptr && !service.contains('.')) {
    // A name without a package, as jprotobuf sends it, finds the only service of that name.
    const std::string suffix = "." + name;
    std::size_t matches = 0;
    host().dispatcher.each([&](const rpc::Dispatcher::Method& method) {
      if (method.name.ends_with(suffix) && ++matches == 1) found = &method;
    });
    if (matches > 1) found = nullptr;
    return found;
  }
  if (found != nullptr) last_method_ = found;
  return found;
}

void BaiduStdServerSession::on_request(const RpcMeta& meta, const ReceivedFrame& frame) {
  host().counters.calls.add(1);
  const std::size_t calls_max = host().options.calls_per_connection_max;
  if (full(calls_max) || states_.full()) [[unlikely]] {
    const Error error = full_error(calls_max);
    return refuse(meta, rpc_error_of(error), error.text);
  }
  if (frame.discarded) [[unlikely]]
    return refuse(meta, limit_reached, unkept_error(account()).text);
  if (meta.attachment_size < 0 || static_cast<std::size_t>(meta.attachment_size) > frame.data.size()) [[unlikely]] {
    return refuse(meta, bad_request,
                  "attachment_size " + std::to_string(meta.attachment_size) + " exceeds the " +
                      count_text(frame.data.size(), "byte") + " behind the meta");
  }
  if (meta.chunked) [[unlikely]]
    return refuse(meta, bad_request, "chunk_info is not supported: send the request in one frame");
  const rpc::Dispatcher::Method* const method = find_method(*meta.request);
  if (method == nullptr) [[unlikely]] {
    return refuse(meta, no_method, "the server has no method of that name: register it, or compare the names");
  }
  if (method->json == nullptr || method->json->encoding() != "proto") [[unlikely]] {
    return refuse(meta, no_method,
                  "this method is served in Hawser's own protocol only: its arguments are not a protobuf message");
  }
  if (const auto fault = fault_of_streams(meta, *method, options_->streams_per_call_max)) [[unlikely]]
    return refuse(meta, bad_request, *fault);
  const auto attachment_bytes = static_cast<std::size_t>(meta.attachment_size);
  const Bytes body = frame.data.first(frame.data.size() - attachment_bytes);
  if (const auto fault = fault_of_body(meta, frame.data, body)) [[unlikely]]
    return refuse(meta, bad_request, *fault);
  const Result<Buffer> metadata = collect_metadata(meta, frame.meta);
  if (!metadata) [[unlikely]]
    return refuse(meta, bad_request, "user_fields: " + metadata.error().text);
  std::optional<Time> deadline;
  // The timeout of a request that opens a stream bounds the reply and not the stream.
  if (!meta.stream && meta.request->timeout_ms && *meta.request->timeout_ms > 0) {
    deadline = loop().now() + std::chrono::milliseconds(*meta.request->timeout_ms);
  }
  const Bytes attachment = frame.data.last(attachment_bytes);
  begin_call(meta, *method,
             {.sink = *this,
              .deadline = deadline,
              .body = body,
              .attachment = attachment,
              .metadata = MetadataView(metadata->bytes()),
              .head_block = frame.block,
              .payload_block = frame.block,
              .account = bounded_account(),
              .decode_limits = &host().options.decode_limits});
}

void BaiduStdServerSession::begin_call(const RpcMeta& meta, const rpc::Dispatcher::Method& method,
                                       detail::IncomingRequest request) {
  const auto content = static_cast<ContentType>(meta.content_type);
  const auto [number, call] = states_.add();
  call.correlation_id = meta.correlation_id;
  call.compression = static_cast<Compression>(meta.compress_type);
  call.content = content;
  call.json = content == ContentType::proto ? nullptr : method.json;
  call.checksum = meta.checksum_type != 0;
  call.checksum_with_attachment = meta.checksum_with_attachment;
  if (meta.stream) [[unlikely]] {
    call.stream = std::make_unique<StreamEnd>();
    call.stream->id = own_id(number);
    call.stream->peer_id = meta.stream->stream_id;
    call.stream->peer_needs_feedback = meta.stream->need_feedback;
    call.stream->incoming = method.streams_in;
    call.stream->extended = meta.stream->extended;
    call.offered = meta.stream->extra_ids;
  }
  request.call = number;
  rpc::BodyForm form{.json = call.json};
  if (call.compression != Compression::none) [[unlikely]] {
    form.unpack = unpack_of(call.compression);
    form.unpacked_max = unpacked_bytes_max(call.compression, request.body, frame_bytes_max_);
  }
  if (form.plain()) [[likely]] {
    serve(method, request);
  } else {
    serve_form(method, request, form);
  }
  if (!method.streams_in && !method.streams_out) return;
  const detail::ActiveCall* const active = calls().find(wire::CallId::from_number(number));
  // Behind interceptors or a conversion, handler_begun() follows, or an error.
  if (active != nullptr && !active->observed && !active->request().coded) open_waiting_stream(number);
}

void BaiduStdServerSession::handler_begun(std::uint32_t call) {
  const detail::ActiveCall* const active = calls().find(wire::CallId::from_number(call));
  if (active == nullptr || active->method == nullptr) return;
  if (active->method->streams_in || active->method->streams_out) open_waiting_stream(call);
}

// The caller waits for the reply before it uses the stream, so a handler that waits for the caller gets it opened.
void BaiduStdServerSession::open_waiting_stream(std::uint32_t number) {
  ServerCall* const call = states_.find(number);
  if (call != nullptr && !call->stream->open && !closed()) send_opening_reply(*call);
}

void BaiduStdServerSession::refuse(const RpcMeta& meta, std::int32_t code, std::string_view text) {
  host().counters.calls_refused.add(1);
  std::optional<std::int64_t> stream;
  if (meta.stream) stream = meta.stream->stream_id;
  send_error(meta.correlation_id, stream, code, text);
}

// ---- Replies ----

void BaiduStdServerSession::finish_call(std::uint32_t call) noexcept {
  ServerCall* const state = states_.find(call);
  if (state != nullptr && !state->further.empty()) [[unlikely]]
    drop_further(*state);
  calls().answered(wire::CallId::from_number(call));
  states_.remove(call);
}

std::byte* BaiduStdServerSession::begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                                              const detail::ReplyExtras& extras) {
  ServerCall* const state = states_.find(call);
  if (state == nullptr) return nullptr;
  StreamEnd* const stream = state->stream.get();
  if (closed() || (stream != nullptr && stream->peer_closed)) [[unlikely]] {
    finish_call(call);
    return nullptr;
  }
  const std::size_t data_bytes = size.body + size.payload + extras.attachment.size();
  if (size.too_large || data_bytes > frame_bytes_max_) [[unlikely]] {
    reply_error(call, too_long(data_bytes, frame_bytes_max_));
    return nullptr;
  }
  count_reply(call, data_bytes);
  pending_.call = call;
  pending_.plain = {};  // A reply that was begun may have thrown before its end.
  pending_.body_bytes = size.body;
  pending_.payload_bytes = size.payload;
  pending_.attachment_bytes = extras.attachment.size();
  pending_.checksum = nullptr;
  pending_.closes_stream = stream != nullptr && state->stream->core != nullptr;
  pending_.opens_stream = false;
  if (stream != nullptr && stream->open) [[unlikely]] {
    // The reply has been sent already. A result becomes the last message of the stream.
    pending_.head_bytes = 0;
    if (data_bytes == 0) return reserve(1);
    StreamFrameMeta meta = stream->frame(StreamFrameType::data);
    meta.result = stream->extended;
    const std::size_t meta_size = stream_meta_bytes(meta);
    pending_.head_bytes = FrameHeader::bytes + meta_size + size.body;
    std::byte* const at = reserve(pending_.head_bytes);
    write_header(at, {BaiduStdFrameKind::stream, static_cast<std::uint32_t>(meta_size + data_bytes),
                      static_cast<std::uint32_t>(meta_size)});
    return write_stream_meta(at + FrameHeader::bytes, meta);
  }
  const bool compressed =
      state->compression != Compression::none && size.body + size.payload >= options_->compress_reply_bytes_min;
  if (compressed || state->json != nullptr) [[unlikely]] {
    pending_.plain = Buffer::allocate(std::max<std::size_t>(size.body, 1));
    pending_.metadata = extras.metadata == nullptr ? Metadata() : *extras.metadata;
    return pending_.plain.mutable_data();
  }
  RpcMeta meta{.response = ResponseMeta{},
               .correlation_id = state->correlation_id,
               .attachment_size = static_cast<std::int32_t>(extras.attachment.size()),
               .checksum_type = state->checksum ? 1 : 0,
               .checksum_with_attachment = state->checksum && state->checksum_with_attachment};
  if (pending_.closes_stream) [[unlikely]]
    meta.stream = settings_of(*state);
  return begin_response(*state, meta, extras.metadata, size.body, data_bytes);
}

std::byte* BaiduStdServerSession::begin_response(const ServerCall& call, const RpcMeta& meta, const Metadata* metadata,
                                                 std::size_t room, std::size_t after) {
  const std::size_t meta_size = meta_bytes(meta, metadata);
  const std::size_t frame_size = meta_size + after;
  std::size_t wrapper = 0;
  StreamFrameMeta wrap;
  if (call.stream != nullptr) [[unlikely]] {
    // The whole reply to a request that opens a stream is the data of a stream frame.
    wrap = {call.stream->peer_id, meta.stream ? meta.stream->stream_id : -1, StreamFrameType::data};
    wrapper = FrameHeader::bytes + stream_meta_bytes(wrap);
  }
  pending_.head_bytes = wrapper + FrameHeader::bytes + meta_size + room;
  std::byte* at = reserve(pending_.head_bytes);
  if (wrapper != 0) [[unlikely]] {
    const std::size_t wrap_size = wrapper - FrameHeader::bytes;
    at = write_header(
        at, {BaiduStdFrameKind::stream, static_cast<std::uint32_t>(wrap_size + FrameHeader::bytes + frame_size),
             static_cast<std::uint32_t>(wrap_size)});
    at = write_stream_meta(at, wrap);
  }
  at = write_header(
      at, {BaiduStdFrameKind::rpc, static_cast<std::uint32_t>(frame_size), static_cast<std::uint32_t>(meta_size)});
  std::byte* const checksum = write_meta(at, meta, metadata);
  pending_.checksum = meta.checksum_type == 0 ? nullptr : checksum;
  pending_.body = at + meta_size;
  return pending_.body;
}

void BaiduStdServerSession::end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  try {
    if (pending_.plain.block() != nullptr) [[unlikely]] {
      if (!send_converted(pieces, owner)) return;
    } else {
      if (pending_.checksum != nullptr) [[unlikely]] {
        ServerCall* const call = states_.find(pending_.call);
        const bool all = call != nullptr && call->checksum_with_attachment;
        std::uint32_t crc = crc32c(0, Bytes(pending_.body, pending_.body_bytes));
        crc = crc_of(crc, pieces, pending_.payload_bytes + (all ? pending_.attachment_bytes : 0));
        const std::uint32_t value = wire_checksum(crc);
        std::memcpy(pending_.checksum, &value, checksum_bytes);
      }
      if (pending_.head_bytes != 0) commit(pending_.head_bytes);
      if (!pieces.empty()) {
        borrow(pieces, owner);
      } else if (owner != nullptr) {
        owner->on_send_complete();
      }
    }
    if (pending_.opens_stream) [[unlikely]] {
      if (ServerCall* const call = states_.find(pending_.call)) call->stream->open = true;
      return;
    }
    if (pending_.closes_stream) [[unlikely]] {
      ServerCall* const call = states_.find(pending_.call);
      if (call != nullptr) {
        send_stream_frame(call->stream->frame(StreamFrameType::close));
      }
    }
    finish_call(pending_.call);
  } catch (...) {
    fail_connection();
  }
}

// Sends a reply whose body is JSON or compressed, or begins to convert it. The attachment is neither.
bool BaiduStdServerSession::send_converted(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  PendingReply reply = std::exchange(pending_, {});
  pending_.call = reply.call;
  pending_.closes_stream = reply.closes_stream;
  pending_.opens_stream = reply.opens_stream;
  const ServerCall& call = *states_.find(reply.call);
  const std::size_t loaned = reply.payload_bytes + reply.attachment_bytes;
  Buffer body = reply.plain.slice(0, reply.body_bytes);
  Buffer rest;
  if (loaned != 0) {
    // One contiguous copy: the result and the attachment may share a piece list.
    rest = Buffer::allocate(loaned);
    std::byte* at = rest.mutable_data();
    for (const ConstBuffer& piece : pieces) {
      if (piece.size != 0) std::memcpy(at, piece.data, piece.size);
      at += piece.size;
    }
  }
  if (owner != nullptr) owner->on_send_complete();
  const Bytes payload = rest.bytes().first(reply.payload_bytes);
  if (call.json != nullptr) {
    // The replies that open streams are in order with the frames of the stream.
    if (body.size() + payload.size() > rpc::json_in_place_max && call.stream == nullptr) {
      conversions_.spawn(convert_result(std::move(reply), std::move(body), std::move(rest)));
      return false;
    }
    const Result<std::string> text = call.json->result_to_json(body.bytes(), payload);
    if (!text) {
      reply_error(reply.call, text.error());
      return false;
    }
    body = Buffer::copy_of(std::string_view(*text));
  } else if (!payload.empty()) {
    Buffer joined = Buffer::allocate(body.size() + payload.size());
    if (!body.empty()) std::memcpy(joined.mutable_data(), body.data(), body.size());
    std::memcpy(joined.mutable_data() + body.size(), payload.data(), payload.size());
    body = std::move(joined);
  }
  return send_body(call, reply, std::move(body), rest.bytes().last(reply.attachment_bytes));
}

bool BaiduStdServerSession::send_body(const ServerCall& call, const PendingReply& reply, Buffer body,
                                      Bytes attachment) {
  Compression compression = Compression::none;
  if (call.compression != Compression::none && body.size() >= options_->compress_reply_bytes_min) {
    Result<Buffer> packed = compress(call.compression, body.bytes());
    if (!packed) {
      reply_error(reply.call, packed.error());
      return false;
    }
    body = std::move(*packed);
    compression = call.compression;
  }
  const bool with_attachment = call.checksum && call.checksum_with_attachment;
  RpcMeta meta{.response = ResponseMeta{},
               .compress_type = static_cast<std::int32_t>(compression),
               .correlation_id = call.correlation_id,
               .attachment_size = static_cast<std::int32_t>(attachment.size()),
               .content_type = static_cast<std::int32_t>(call.content),
               .checksum_type = call.checksum ? 1 : 0,
               .checksum_with_attachment = with_attachment};
  if (reply.closes_stream) meta.stream = settings_of(call);
  const std::size_t data_bytes = body.size() + attachment.size();
  if (data_bytes > frame_bytes_max_) {
    reply_error(reply.call, too_long(data_bytes, frame_bytes_max_));
    return false;
  }
  std::byte* const to = begin_response(call, meta, &reply.metadata, data_bytes, data_bytes);
  if (!body.empty()) std::memcpy(to, body.data(), body.size());
  if (!attachment.empty()) std::memcpy(to + body.size(), attachment.data(), attachment.size());
  if (pending_.checksum != nullptr) {
    const std::uint32_t value = wire_checksum(crc32c(0, Bytes(to, with_attachment ? data_bytes : body.size())));
    std::memcpy(pending_.checksum, &value, checksum_bytes);
  }
  commit(pending_.head_bytes);
  return true;
}

void BaiduStdServerSession::reply_error(std::uint32_t call, const Error& error) {
  ServerCall* const state = states_.find(call);
  if (state == nullptr) return;
  const ErrorCode code = code_for_caller(call, error.code);
  count_error(call, code, error);
  StreamEnd* const stream = state->stream.get();
  if (!closed()) {
    if (stream == nullptr || !stream->open) {
      std::optional<std::int64_t> stream_id;
      if (stream != nullptr) stream_id = stream->peer_id;
      send_error(state->correlation_id, stream_id, code == error.code ? rpc_error_of(error) : rpc_timed_out,
                 error.text);
    } else if (!stream->peer_closed) {
      StreamFrameMeta reset = stream->frame(StreamFrameType::reset);
      if (stream->extended) {
        reset.error_code = code == error.code ? rpc_error_of(error) : rpc_timed_out;
        reset.error_text = std::string_view(error.text).substr(0, error_text_bytes_max);
      }
      send_stream_frame(reset);
    }
  }
  finish_call(call);
}

void BaiduStdServerSession::send_error(std::int64_t correlation_id, const std::optional<std::int64_t>& stream,
                                       std::int32_t code, std::string_view text) {
  const RpcMeta meta{.response = ResponseMeta{code, text.substr(0, error_text_bytes_max)},
                     .correlation_id = correlation_id};
  ServerCall refused;
  if (stream) {
    refused.stream = std::make_unique<StreamEnd>();
    refused.stream->peer_id = *stream;
  }
  begin_response(refused, meta, nullptr, 0, 0);
  commit(pending_.head_bytes);
}

}  // namespace hawser::protocol::baidu_std
