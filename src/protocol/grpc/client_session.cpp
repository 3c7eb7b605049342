#include "protocol/grpc/client_session.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "base/decimal_text.h"
#include "hawser/detail/const_buffers.h"
#include "hawser/detail/loop_access.h"
#include "pipe/null_sink.h"
#include "protocol/grpc/header_values.h"
#include "protocol/grpc/status.h"
#include "protocol/http2/error_codes.h"
#include "protocol/http2/send_room.h"
#include "rpc/client/client_session.h"
#include "rpc/session/wake_writers.h"

namespace hawser::protocol::grpc {
namespace {

using detail::CallOperation;

constexpr std::size_t receive_block_bytes = 64 * 1024;
// So many times send_backlog_bytes_max may wait in streams whose server does not read.
constexpr std::size_t waiting_marks_max = 4;

MetadataView metadata_of(const GrpcStream& stream) noexcept {
  return MetadataView(Bytes(stream.fields.metadata.data(), stream.fields.metadata.size()));
}

MachineOptions machine_options(const GrpcClientOptions& options) {
  return {.connection = {.server = false,
                         .metadata_bytes_max = options.metadata_bytes_max,
                         .streams_max = options.calls_in_flight_max,
                         .stream_window_bytes = options.stream_window_bytes,
                         .connection_window_bytes = options.connection_window_bytes},
          .message_bytes_max = options.message_bytes_max};
}

}  // namespace

GrpcClientSession::GrpcClientSession(Loop& loop, std::unique_ptr<transport::Stream> stream, GrpcClientOptions options,
                                     std::string authority, Owner& owner)
    : loop_(loop),
      options_(std::move(options)),
      authority_(std::move(authority)),
      owner_(owner),
      stream_(std::move(stream)),
      last_used_(loop.now()),
      keepalive_(loop, *this),
      machine_(machine_options(options_), *this, nullptr, stream_.queue()),
      unpacker_(loop, this) {}

GrpcClientSession::~GrpcClientSession() {
  loop_.remove_tick_end(*this);
  stream_.close_now();
}

void GrpcClientSession::begin() {
  stream_->start(loop_, *this);
  keepalive_.start(options_.ping_interval);
  send_soon();
}

// ---- Requests ----

Encoding GrpcClientSession::encoding_for(const GrpcStream& stream, std::size_t bytes) const noexcept {
  return bytes < options_.compression_bytes_min ? Encoding::identity : stream.send_encoding;
}

// The field grpc-encoding has announced the client's compression for the whole call.
bool GrpcClientSession::choose_compression(std::uint32_t call, Encoding encoding) {
  GrpcStream* const stream = stream_.closed() ? nullptr : machine_.find(call);
  if (stream == nullptr || (encoding != Encoding::identity && encoding != encoding_of(options_.compression))) {
    return false;
  }
  stream->send_encoding = encoding;
  return true;
}

bool GrpcClientSession::may_send(CallOperation& operation) {
  const CallOperation::Request& request = operation.request();
  const auto refuse = [&](ErrorCode code, std::string text) {
    operation.complete(loop_, Error::of_call(code, std::move(text)));
    return false;
  };
  if (Loop* const here = Loop::current(); here != &loop_ && here != nullptr) {
    return refuse(ErrorCode::invalid_argument, "this client belongs to another loop than the one that runs here");
  }
  if (stream_.closed()) return refuse(ErrorCode::not_sent, "the connection has ended");
  if (going_away_) return refuse(ErrorCode::unavailable, "the server is stopping and takes no new calls");
  if (request.size.too_large) {
    return refuse(request.size.code, std::string("the arguments can't be encoded: ") + request.size.why_not);
  }
  if (request.size.body + request.size.payload > message_length_max) {
    return refuse(ErrorCode::limit_exceeded, "the arguments exceed 4 GiB");
  }
  if (machine_.used_streams() >= options_.calls_in_flight_max) {
    return refuse(ErrorCode::overloaded, "the connection has " + count_text(options_.calls_in_flight_max, "call") +
                                             " in flight already (calls_in_flight_max): wait for replies, or raise it");
  }
  if (!may_begin(request)) {
    return refuse(ErrorCode::overloaded,
                  "send_backlog_bytes_max bytes of requests wait to be sent: the server is slower than the calls");
  }
  if (request.streams_in && request.size.body + request.size.payload != 0) {
    return refuse(ErrorCode::invalid_argument, "gRPC carries no arguments beside a stream");
  }
  if (request.options == nullptr) return true;
  if (!request.options->attachment.empty()) {
    return refuse(ErrorCode::invalid_argument, "gRPC carries no attachment: put it into the message");
  }
  for (const auto& [name, value] : request.options->metadata) {
    if (!is_metadata_name(name) || is_reserved_name(name) || (!is_binary_name(name) && !is_plain_value(value))) {
      return refuse(ErrorCode::invalid_argument,
                    "gRPC cannot carry the metadata '" + name +
                        "': names consist of 0-9, a-z, '_', '-' and '.' and do not begin with grpc-; values are "
                        "printable ASCII unless the name ends in -bin");
    }
  }
  return true;
}

void GrpcClientSession::start(CallOperation& operation) {
  if (!may_send(operation)) return;
  try {
    send(operation);
  } catch (const std::bad_alloc&) {
    end(Error::of_connection(ErrorCode::internal, "out of memory"));
  }
}

GrpcStream* GrpcClientSession::open(const CallOperation::Request& request, Time deadline) {
  const std::string path = "/" + std::string(request.name);
  std::vector<GrpcMachine::Field> fields = {{":method", "POST"},      {":scheme", "http"},
                                            {":path", path},          {":authority", authority_},
                                            {"te", "trailers"},       {"content-type", "application/grpc"},
                                            {"user-agent", "hawser"}, {"grpc-accept-encoding", accepted_encodings}};
  std::string timeout;
  if (deadline != Time::max()) {
    timeout = format_timeout(deadline - loop_.now());
    fields.insert(fields.begin() + 4, {"grpc-timeout", timeout});
  }
  const Encoding encoding = encoding_of(options_.compression);
  if (encoding != Encoding::identity) fields.emplace_back("grpc-encoding", to_string(encoding));
  std::vector<std::string> encoded;
  std::string attempts;
  if (request.options != nullptr && request.options->earlier_attempts != 0) {
    attempts = std::to_string(request.options->earlier_attempts);
    fields.emplace_back(previous_attempts_name, attempts);
  }
  if (request.options != nullptr) {
    encoded.reserve(request.options->metadata.size());
    for (const auto& [name, value] : request.options->metadata) {
      if (is_binary_name(name)) {
        fields.emplace_back(name, encoded.emplace_back(base64_encode(value)));
      } else {
        fields.emplace_back(name, value);
      }
    }
  }
  GrpcStream* const stream = machine_.begin_request(fields);
  if (stream != nullptr) stream->send_encoding = encoding;
  return stream;
}

void GrpcClientSession::send(CallOperation& operation) {
  const CallOperation::Request& request = operation.request();
  const Time deadline = rpc::call_deadline(loop_, request, options_.call_timeout);
  detail::ConstBuffers pieces(request.size.pieces);
  GrpcStream* const stream = open(request, deadline);
  if (stream == nullptr) {
    going_away_ = true;
    return operation.complete(
        loop_, Error::of_connection(ErrorCode::unavailable, "the connection has no stream ids left: connect again"));
  }
  calls_.add(*stream, operation);
  stream->busy = true;
  last_used_ = loop_.now();
  full_ = full_ || free_places() == 0;
  operation.begin(*this, stream->call, deadline);
  if (request.streams) {
    operation.set_stream(std::make_shared<detail::StreamCore>(*this, stream->call, options_.stream_window_bytes,
                                                              options_.stream_window_bytes));
  }
  if (!request.streams_in) {
    std::byte* const body = writer_.begin(*stream, request.size);
    operation.encode(body, pieces.data());
    std::span<const ConstBuffer> rest = pieces.span();
    Buffer head = writer_.finish(rest, encoding_for(*stream, writer_.bytes()));
    if (!rest.empty()) operation.loan();
    machine_.send_message(*stream, std::move(head), rest, rest.empty() ? nullptr : &operation, 0);
    machine_.send_end(*stream);
  }
  send_soon();
  // Many requests of one tick are sent in parts. The server works on the first ones meanwhile.
  if (machine_.receiving() || machine_.waiting_bytes() < early_.bytes(loop_.now())) return;
  early_.sent();
  flush();
}

void GrpcClientSession::forget(GrpcStream& stream) noexcept {
  calls_.remove(stream);
  last_used_ = loop_.now();
  if (stream.open && !(stream.remote_ended && stream.ended)) machine_.reset(stream, http2::cancel);
  stream.take = GrpcStream::Take::drop;
  machine_.release_stream(stream);
  send_soon();
}

void GrpcClientSession::abandon(CallOperation& operation) noexcept {
  GrpcStream* const stream = machine_.find(operation.id());
  if (stream != nullptr && calls_.find(*stream) == &operation) forget(*stream);
}

void GrpcClientSession::cancel(std::uint32_t call, const Error& error) {
  GrpcStream* const stream = machine_.find(call);
  if (stream != nullptr && calls_.find(*stream) != nullptr) finish(*stream, error);
}

// ---- Replies ----

void GrpcClientSession::finish(GrpcStream& stream, std::optional<Error> error) {
  CallOperation& operation = *calls_.find(stream);
  if (CallOutcome* const outcome = operation.outcome()) report(stream, *outcome);
  if (error) {
    const auto pushback = metadata_of(stream).find(retry_pushback_name);
    if (pushback) error->retry_after = parse_pushback(*pushback);
  }
  if (detail::StreamCore* const core = operation.stream()) core->on_closed(error);
  forget(stream);
  if (error) {
    operation.complete(loop_, std::move(*error));
  } else {
    operation.complete(loop_);
  }
}

void GrpcClientSession::report(const GrpcStream& stream, CallOutcome& outcome) {
  if (stream.fields.grpc_status >= 0) outcome.status = stream.fields.grpc_status;
  const MetadataView metadata = metadata_of(stream);
  outcome.metadata = metadata.copy();
  outcome.compressed = stream.messages != 0 && stream.reader.compressed();
  if (const auto details = metadata.find(status_details_name)) outcome.details = *details;
}

void GrpcClientSession::on_headers(GrpcStream& stream) {
  const CallOperation* const operation = calls_.find(stream);
  const bool usable = stream.fields.http_status == 200 && stream.fields.grpc_content && !stream.fields.too_large;
  if (operation == nullptr || !usable) return;
  stream.take = operation->request().streams_out ? GrpcStream::Take::deliver : GrpcStream::Take::keep_one;
}

void GrpcClientSession::on_message(GrpcStream& stream, Bytes message, Block* block) {
  CallOperation* const operation = calls_.find(stream);
  if (operation == nullptr || operation->stream() == nullptr) return;
  detail::ReceiveAccount unbounded(nullptr);
  deliver_item(*operation->stream(), stream, message, block, unbounded);
}

void GrpcClientSession::on_end(GrpcStream& stream) {
  CallOperation* const operation = calls_.find(stream);
  if (operation == nullptr) return;
  const HeaderFields& fields = stream.fields;
  const auto failed = [&](ErrorCode code, std::string text) {
    finish(stream, Error::of_call(Initiator::peer, code, std::move(text)));
  };
  if (fields.too_large) {
    return failed(ErrorCode::limit_exceeded, "the reply's metadata exceeds metadata_bytes_max (" +
                                                 count_text(options_.metadata_bytes_max, "byte") + ")");
  }
  if (fields.grpc_status == HeaderFields::no_status) {
    return finish(
        stream,
        error_of(static_cast<int>(status_of_http(fields.http_status)),
                 "the answer has no grpc-status; its HTTP status is " + std::to_string(fields.http_status), true));
  }
  if (fields.grpc_status < 0) return failed(ErrorCode::protocol_error, "grpc-status is malformed");
  if (fields.grpc_status != 0) {
    return finish(stream, error_of(fields.grpc_status, fields.grpc_message, !stream.headers_seen));
  }
  if (operation->request().streams_out || stream.messages == 1) return succeed(stream);
  failed(ErrorCode::protocol_error, stream.messages == 0 ? "the answer has status OK and no message"
                                                         : "the answer of a unary method has more than one message");
}

void GrpcClientSession::succeed(GrpcStream& stream) {
  CallOperation& operation = *calls_.find(stream);
  detail::Received received{.body = stream.message,
                            .payload = {},
                            .attachment = {},
                            .metadata = {},
                            .head_block = stream.message_block,
                            .decode_limits = &options_.decode_limits};
  const Bytes metadata(stream.fields.metadata.data(), stream.fields.metadata.size());
  Buffer together;
  if (!metadata.empty()) {
    // Metadata precedes the body in one piece of memory.
    together = Buffer::allocate(metadata.size() + stream.message.size());
    std::memcpy(together.mutable_data(), metadata.data(), metadata.size());
    if (!stream.message.empty()) {
      std::memcpy(together.mutable_data() + metadata.size(), stream.message.data(), stream.message.size());
    }
    received.metadata = MetadataView(together.bytes().first(metadata.size()));
    received.body = together.bytes().subspan(metadata.size());
    received.head_block = together.block();
  }
  operation.decode(received);
  finish(stream, std::nullopt);
}

void GrpcClientSession::on_bad(GrpcStream& stream, const Error& why) {
  if (calls_.find(stream) != nullptr) finish(stream, why);
}

void GrpcClientSession::on_closed(GrpcStream& stream, std::uint32_t http2_code) {
  const CallOperation* const operation = calls_.find(stream);
  if (operation == nullptr) return;
  // The whole answer has arrived, and a part of it has not been delivered yet.
  if (http2_code == http2::no_error && stream.remote_ended && !stream.end_delivered) return;
  if (http2_code == http2::refused_stream) {
    // The server has not processed it.
    return finish(stream, Error::of_call(Initiator::peer, ErrorCode::unavailable,
                                         "the server refused the call and has not executed it: call again"));
  }
  GrpcStatus status = status_of_reset(http2_code);
  std::string text = "the server reset the call with the code " + std::to_string(http2_code) + " of HTTP/2";
  // A server resets a call whose deadline has passed, perhaps before the timer of this side runs.
  if (status == GrpcStatus::cancelled && operation->deadline() <= loop_.poller().now()) {
    status = GrpcStatus::deadline_exceeded;
    text += ", after the deadline of the call";
  }
  finish(stream, error_of(static_cast<int>(status), text, false));
}

void GrpcClientSession::on_goaway(std::int32_t, std::uint32_t, std::string_view) {
  going_away_ = true;
  owner_.on_place();
}

// ---- Streams ----

std::byte* GrpcClientSession::begin_item(std::uint32_t call, const codec::EncodedSize& size) {
  GrpcStream* const stream = stream_.closed() ? nullptr : machine_.find(call);
  if (stream == nullptr || !stream->open || size.too_large || size.body + size.payload > message_length_max) {
    return nullptr;
  }
  return writer_.begin(*stream, size);
}

void GrpcClientSession::end_item(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  const std::uint32_t credit = item_credit(writer_.bytes());
  Buffer head = writer_.finish(pieces, encoding_for(writer_.stream(), writer_.bytes()));
  machine_.send_message(writer_.stream(), std::move(head), pieces, owner, credit);
  send_soon();
}

void GrpcClientSession::send_end(std::uint32_t call) {
  GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr) return;
  const CallOperation* const operation = calls_.find(*stream);
  if (operation == nullptr || !operation->request().streams_in) return;
  machine_.send_end(*stream);
  send_soon();
}

void GrpcClientSession::send_credit(std::uint32_t call, std::uint32_t bytes) {
  GrpcStream* const stream = stream_.closed() ? nullptr : machine_.find(call);
  if (stream == nullptr) return;
  machine_.release(*stream, bytes);
  send_soon();
}

void GrpcClientSession::on_sent(GrpcStream& stream, std::uint32_t credit) {
  CallOperation* const operation = calls_.find(stream);
  if (operation != nullptr && operation->stream() != nullptr) {
    static_cast<void>(operation->stream()->on_credit(credit));
  }
}

bool GrpcClientSession::has_room() const noexcept {
  const std::size_t mark = options_.send_backlog_bytes_max;
  const std::size_t waiting = machine_.waiting_bytes();
  return http2::SendRoom{stream_.backlog(), waiting, mark, waiting / waiting_marks_max < mark}.for_items();
}

// No credit bounds requests with one message, but the number of their bytes. They are counted only if there may be too
// many. A request with a stream begins without a message.
bool GrpcClientSession::may_begin(const CallOperation::Request& request) const noexcept {
  const std::size_t mark = options_.send_backlog_bytes_max;
  std::size_t bytes = stream_.backlog();
  if (bytes + machine_.waiting_bytes() <= mark) return true;
  if (!has_room()) return false;
  if (request.streams_in) return true;
  machine_.for_each([&](const GrpcStream& stream) {
    const CallOperation* const operation = calls_.find(stream);
    if (operation == nullptr || !operation->request().streams_in) bytes += stream.out.bytes();
  });
  return bytes <= mark;
}

// ---- Compressed messages ----

// The end of a call may destroy the session, whose tasks must not do that: the loop delivers the message. It is
// allocated in advance, because a call must be able to end without memory.
struct GrpcClientSession::Delivery final : detail::Posted {
  Delivery(std::weak_ptr<GrpcClientSession> to, std::uint32_t id) noexcept : weak(std::move(to)), call(id) {}
  void run() override {
    const std::shared_ptr<GrpcClientSession> session = weak.lock();
    if (session == nullptr || session->stream_.closed()) return;
    try {
      session->machine_.unpacked(call, std::move(message));
      session->send_soon();
    } catch (const std::exception&) {
      session->end(Error::of_connection(ErrorCode::internal, "out of memory"));
    }
  }
  const std::weak_ptr<GrpcClientSession> weak;
  const std::uint32_t call;
  Result<Buffer> message;
};

bool GrpcClientSession::on_packed(std::uint32_t call, PackedMessage&& packed, detail::ReceiveCharge&&) {
  unpacker_.spawn(unpack_later(std::make_unique<Delivery>(weak_from_this(), call), std::move(packed)));
  return true;
}

Task<void> GrpcClientSession::unpack_later(std::unique_ptr<Delivery> delivery, PackedMessage packed) {
  try {
    delivery->message = co_await unpacker_.unpack(std::move(packed));
  } catch (const std::exception&) {
    delivery->message = fail(Error::of_call(ErrorCode::internal, "out of memory"));
  }
  loop_.post(std::unique_ptr<detail::Posted>(std::move(delivery)));
}

// ---- The connection ----

MutableBytes GrpcClientSession::receive_space() {
  if (stream_.closed()) return pipe::discard_buffer();
  if (!block_.fit(receive_block_bytes)) block_.replace(receive_block_bytes);
  return block_.space();
}

void GrpcClientSession::received(std::size_t bytes) {
  const std::shared_ptr<GrpcClientSession> alive = shared_from_this();
  if (stream_.closed()) return;
  if (bytes == 0) return block_.drop();
  keepalive_.received(bytes);
  block_.received(bytes);
  const Result<void> status = machine_.receive(block_.bytes(), block_.block(), loop_.now());
  block_.take(bytes);
  if (!status) return end(status.error());
  send_soon();
}

void GrpcClientSession::flush() {
  if (stream_.sending()) return;
  const std::shared_ptr<GrpcClientSession> alive = shared_from_this();
  stream_.send_produced([this] { machine_.pump(); });
  if (writers_.linked() && has_room()) rpc::wake_writers(writers_);
  if (full_ && !stream_.closed() && free_places() != 0) {
    full_ = false;
    owner_.on_place();
  }
  if (!stream_.closed() && stream_.backlog() == 0 && machine_.finished()) {
    end(machine_.failure() ? *machine_.failure()
                           : Error::of_connection(Initiator::peer, ErrorCode::unavailable, "the server has stopped"));
  }
}

void GrpcClientSession::sendable(std::size_t bytes) {
  stream_.sendable(bytes);
  flush();
}

void GrpcClientSession::end(const Error& reason) {
  if (stream_.closed()) return;
  const std::shared_ptr<GrpcClientSession> alive = shared_from_this();
  keepalive_.stop();
  loop_.remove_tick_end(*this);
  stream_.close(loop_);
  const Error error = rpc::ended_call(false, reason);
  machine_.for_each([&](GrpcStream& stream) {
    if (calls_.find(stream) != nullptr) finish(stream, error);
  });
  stream_.queue().clear();
  unpacker_.stop();
  machine_.close_all(reason);
  writers_.unlink();
  owner_.on_session_end(reason);
}

void GrpcClientSession::send_ping() {
  machine_.ping();
  send_soon();
}

void GrpcClientSession::on_silent_peer() {
  end(Error::of_connection(Initiator::peer, ErrorCode::unavailable,
                           "the server has given no sign of life for two ping intervals"));
}

}  // namespace hawser::protocol::grpc
