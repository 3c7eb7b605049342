#include <algorithm>
#include <chrono>
#include <utility>

#include "protocol/grpc/server_session.h"
#include "protocol/http2/error_codes.h"

// Requests on the connection that are not gRPC.
namespace hawser::protocol::grpc {
namespace {

// A response may queue so many bytes beside those of others.
constexpr std::size_t plain_queue_bytes_least = 64 * 1024;
// The rest of a request that has been answered is received for once to twice this time.
constexpr Duration discard_interval = std::chrono::milliseconds(500);

}  // namespace

void Http2ServerSession::begin_plain(GrpcStream& stream) {
  if (http_ == nullptr) http_ = host().http->open_streams(*this);
  call_of(stream) = {};
  const HeaderFields& fields = stream.fields;
  plain_fields_.clear();
  std::string_view rest = fields.plain;
  for (const auto& [name, value] : fields.plain_sizes) {
    plain_fields_.push_back({rest.substr(0, name), rest.substr(name, value)});
    rest.remove_prefix(std::size_t{name} + value);
  }
  stream.plain = true;
  stream.busy = true;
  stream.take = GrpcStream::Take::plain;
  if (!plain_pace_.running()) start_pace(true);
  const std::uint32_t call = stream.call;
  rpc::HttpExchange* const exchange = http_->begin(call, {.method = fields.method,
                                                          .target = fields.path,
                                                          .authority = fields.authority,
                                                          .fields = plain_fields_,
                                                          .too_large = fields.too_large});
  call_of(stream).exchange = exchange;
  // The exchange has kept what it needs. The charge stays.
  stream.fields.clear();
}

rpc::HttpExchange* Http2ServerSession::exchange_of(const GrpcStream& stream) const noexcept {
  const std::size_t slot = stream.call & 0xFFFF;
  return stream.plain && stream.busy && slot < calls_by_slot_.size() ? calls_by_slot_[slot].exchange : nullptr;
}

std::size_t Http2ServerSession::on_plain(GrpcStream& stream, Bytes bytes) {
  rpc::HttpExchange* const exchange = exchange_of(stream);
  return exchange == nullptr ? bytes.size() : exchange->on_body(bytes);
}

bool Http2ServerSession::plain_receives(const GrpcStream& stream) const noexcept {
  const rpc::HttpExchange* const exchange = exchange_of(stream);
  return exchange != nullptr && exchange->receives();
}

std::optional<Error> Http2ServerSession::refusal(std::size_t beyond) const {
  // Streams that begin when the connection goes away are reset: on_headers().
  if (full_for_accepted(calls_max(), beyond)) return full_for_accepted_error(calls_max());
  return std::nullopt;
}

void Http2ServerSession::run_route(const detail::ServedMethod& name, const detail::IncomingRequest& request,
                                   Route& route) {
  serve_by(name, request, [&] { route.start(request); });
}

void Http2ServerSession::count_answer(std::uint32_t call, std::size_t bytes, ErrorCode code) noexcept {
  count_route(call, code, bytes);
  calls().answered(wire::CallId::from_number(call));
}

void Http2ServerSession::count_failure(std::uint32_t call, ErrorCode code, const Error& error) noexcept {
  count_error(call, code, error);
  calls().answered(wire::CallId::from_number(call));
}

void Http2ServerSession::send_continue(std::uint32_t call) {
  GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr || closed()) return;
  machine_.send_interim(*stream, 100);
  send_soon();
}

void Http2ServerSession::return_window(std::uint32_t call, std::size_t bytes) {
  GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr || closed()) return;
  machine_.return_window(*stream, bytes);
  send_soon();
}

void Http2ServerSession::send_head(std::uint32_t call, unsigned status, std::span<const rpc::HttpField> fields,
                                   bool end) {
  GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr) return;
  std::vector<GrpcMachine::Field> pairs;
  pairs.reserve(fields.size());
  for (const rpc::HttpField& field : fields) pairs.emplace_back(field.name, field.value);
  machine_.send_plain_head(*stream, status, pairs, end);
  if (!closed()) send_soon();
}

void Http2ServerSession::send_body(std::uint32_t call, Buffer head, std::span<const ConstBuffer> pieces,
                                   SendCompletion* owner) {
  GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr) {
    if (owner != nullptr) owner->on_send_complete();
    return;
  }
  std::size_t bytes = head.size();
  for (const ConstBuffer& piece : pieces) bytes += piece.size;
  machine_.send_message(*stream, std::move(head), pieces, owner,
                        static_cast<std::uint32_t>(std::min<std::size_t>(bytes, UINT32_MAX)));
  if (!closed()) send_soon();
}

void Http2ServerSession::end_response(std::uint32_t call, bool whole) {
  GrpcStream* const stream = machine_.find(call);
  if (stream == nullptr) return;
  call_of(*stream).exchange = nullptr;
  stream->take = GrpcStream::Take::drop;
  message_received();
  if (whole) {
    machine_.send_end(*stream);
  } else if (stream->open) {
    // The handler caused the reset, not the client, unless the stream is being reset already.
    const bool broken = stream->headers_sent ? machine_.break_off(*stream) : machine_.reset(*stream, http2::cancel);
    if (broken) machine_.guard().give(http2::FloodGuard::sent_reset_cost);
  }
  answered(*stream);
}

void Http2ServerSession::start_discard_timer() {
  discard_timer_.start(host().loop, host().loop.after(discard_interval));
}

// A request that goes on behind its response would keep its stream for ever.
void Http2ServerSession::check_discards() {
  if (closed()) return;
  bool any = false;
  machine_.for_each([&](GrpcStream& stream) {
    if (!stream.discards || !stream.open || stream.resetting) return;
    if (std::exchange(stream.discards_long, true)) {
      machine_.reset(stream, http2::no_error);
    } else {
      any = true;
    }
  });
  if (any) start_discard_timer();
  send_soon();
}

void Http2ServerSession::give_up(GrpcStream& stream, std::string_view why) {
  if (detail::ActiveCall* const call = calls().find(wire::CallId::from_number(stream.call))) {
    call->request_stop(ErrorCode::cancelled, Initiator::peer, why);
  }
  if (rpc::HttpExchange* const exchange = exchange_of(stream)) exchange->on_gone();
}

bool Http2ServerSession::stream_has_room(std::uint32_t call, std::size_t bytes_max) const noexcept {
  const GrpcStream* const stream = machine_.find(call);
  const std::size_t usual = std::max(plain_queue_bytes_least, host().options.send_backlog_bytes_max / 8);
  return stream == nullptr || stream->out.bytes() <= std::min(bytes_max, usual);
}

}  // namespace hawser::protocol::grpc
