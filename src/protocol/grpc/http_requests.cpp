#include "protocol/grpc/http_requests.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "protocol/grpc/server_session.h"
#include "protocol/http2/error_codes.h"

namespace hawser::protocol::grpc {
namespace {

// A response may queue so many bytes beside those of others.
constexpr std::size_t plain_queue_bytes_least = 64 * 1024;
// The rest of a request that has been answered is received for once to twice this time.
constexpr Duration discard_interval = std::chrono::milliseconds(500);

}  // namespace

HttpRequests::HttpRequests(Http2ServerSession& session) noexcept : session_(session), pace_(*this), discards_(*this) {}

rpc::HttpExchange*& HttpRequests::place_of(std::uint32_t call) {
  const std::size_t slot = call & 0xFFFF;
  if (slot >= by_slot_.size()) by_slot_.resize(slot + 1);
  return by_slot_[slot];
}

void HttpRequests::begin(GrpcStream& stream) {
  if (streams_ == nullptr) streams_ = session_.host().http->open_streams(*this);
  const std::uint32_t call = stream.call;
  place_of(call) = nullptr;
  const HeaderFields& fields = stream.fields;
  fields_.clear();
  std::string_view rest = fields.plain;
  for (const auto& [name, value] : fields.plain_sizes) {
    fields_.push_back({rest.substr(0, name), rest.substr(name, value)});
    rest.remove_prefix(std::size_t{name} + value);
  }
  stream.plain = true;
  stream.busy = true;
  stream.take = GrpcStream::Take::plain;
  if (!pace_.running()) start_pace();
  rpc::HttpExchange* const exchange = streams_->begin(call, {.method = fields.method,
                                                             .target = fields.path,
                                                             .authority = fields.authority,
                                                             .fields = fields_,
                                                             .too_large = fields.too_large});
  place_of(call) = exchange;
  // The exchange has kept what it needs. The charge stays.
  stream.fields.clear();
}

rpc::HttpExchange* HttpRequests::find(const GrpcStream& stream) const noexcept {
  const std::size_t slot = stream.call & 0xFFFF;
  return stream.plain && stream.busy && slot < by_slot_.size() ? by_slot_[slot] : nullptr;
}

std::size_t HttpRequests::on_body(const GrpcStream& stream, Bytes bytes) {
  rpc::HttpExchange* const exchange = find(stream);
  return exchange == nullptr ? bytes.size() : exchange->on_body(bytes);
}

bool HttpRequests::receives(const GrpcStream& stream) const noexcept {
  const rpc::HttpExchange* const exchange = find(stream);
  return exchange != nullptr && exchange->receives();
}

void HttpRequests::stop() noexcept {
  pace_.stop();
  discards_.stop();
}

// ---- For the protocol that serves HTTP ----

detail::ReplySink& HttpRequests::connection() noexcept { return session_; }

rpc::PortHost& HttpRequests::port_host() noexcept { return session_.host(); }

detail::ReceiveAccount& HttpRequests::receive_account() noexcept { return session_.account(); }

std::optional<Error> HttpRequests::refusal(std::size_t beyond) const { return session_.refusal(beyond); }

bool HttpRequests::begins_later(std::uint32_t call) { return session_.begins_later(call); }

Error HttpRequests::no_memory() { return session_.unkept_error(session_.account()); }

void HttpRequests::run_method(const detail::ServedMethod& method, const detail::IncomingRequest& request,
                              const rpc::BodyForm& form) {
  session_.serve_form(method, request, form);
}

void HttpRequests::run_route(const detail::ServedMethod& name, detail::IncomingRequest request,
                             const rpc::BodyForm& form, Route& route) {
  request.coded = !form.plain();
  session_.serve_by(name, request, [&] { route.start(request, form); });
}

void HttpRequests::count_answer(std::uint32_t call, std::size_t bytes, ErrorCode code) noexcept {
  session_.count_route(call, code, bytes);
  session_.calls().answered(wire::CallId::from_number(call));
}

void HttpRequests::count_failure(std::uint32_t call, ErrorCode code, const Error& error) noexcept {
  session_.count_error(call, code, error);
  session_.calls().answered(wire::CallId::from_number(call));
}

void HttpRequests::send_continue(std::uint32_t call) {
  GrpcStream* const stream = session_.machine_.find(call);
  if (stream == nullptr || session_.closed()) return;
  session_.machine_.send_interim(*stream, 100);
  session_.send_soon();
}

void HttpRequests::return_window(std::uint32_t call, std::size_t bytes) {
  GrpcStream* const stream = session_.machine_.find(call);
  if (stream == nullptr || session_.closed()) return;
  session_.machine_.return_window(*stream, bytes);
  session_.send_soon();
}

void HttpRequests::restart_pace() noexcept { session_.message_received(); }

void HttpRequests::send_head(std::uint32_t call, unsigned status, std::span<const rpc::HttpField> fields, bool end) {
  GrpcStream* const stream = session_.machine_.find(call);
  if (stream == nullptr) return;
  std::vector<GrpcMachine::Field> pairs;
  pairs.reserve(fields.size());
  for (const rpc::HttpField& field : fields) pairs.emplace_back(field.name, field.value);
  session_.machine_.send_plain_head(*stream, status, pairs, end);
  if (!session_.closed()) session_.send_soon();
}

void HttpRequests::send_body(std::uint32_t call, Buffer head, std::span<const ConstBuffer> pieces,
                             SendCompletion* owner) {
  GrpcStream* const stream = session_.machine_.find(call);
  if (stream == nullptr) {
    if (owner != nullptr) owner->on_send_complete();
    return;
  }
  std::size_t bytes = head.size();
  for (const ConstBuffer& piece : pieces) bytes += piece.size;
  session_.machine_.send_message(*stream, std::move(head), pieces, owner,
                                 static_cast<std::uint32_t>(std::min<std::size_t>(bytes, UINT32_MAX)));
  if (!session_.closed()) session_.send_soon();
}

void HttpRequests::end_response(std::uint32_t call, bool whole) {
  GrpcMachine& machine = session_.machine_;
  GrpcStream* const stream = machine.find(call);
  if (stream == nullptr) return;
  place_of(call) = nullptr;
  stream->take = GrpcStream::Take::drop;
  session_.message_received();
  if (whole) {
    machine.send_end(*stream);
  } else if (stream->open) {
    // The handler caused the reset, not the client, unless the stream is being reset already.
    const bool broken = stream->headers_sent ? machine.break_off(*stream) : machine.reset(*stream, http2::cancel);
    if (broken) machine.guard().give(http2::FloodGuard::sent_reset_cost);
  }
  session_.answered(*stream);
}

bool HttpRequests::stream_has_room(std::uint32_t call, std::size_t bytes_max) const noexcept {
  const GrpcStream* const stream = session_.machine_.find(call);
  const std::size_t usual = std::max(plain_queue_bytes_least, session_.host().options.send_backlog_bytes_max / 8);
  return stream == nullptr || stream->out.bytes() <= std::min(bytes_max, usual);
}

bool HttpRequests::connection_has_room() const noexcept { return session_.has_room(); }

// ---- Slow clients ----

void HttpRequests::start_pace() { session_.start_pace(pace_, streams_->write_timeout()); }

void HttpRequests::check_pace() {
  if (session_.check_pace(true, streams_->write_timeout())) start_pace();
}

void HttpRequests::start_discards() {
  Loop& loop = session_.host().loop;
  discards_.start(loop, loop.after(discard_interval));
}

// A request that goes on behind its response would keep its stream for ever.
void HttpRequests::check_discards() {
  if (session_.closed()) return;
  bool any = false;
  session_.machine_.for_each([&](GrpcStream& stream) {
    if (!stream.discards || !stream.open || stream.resetting) return;
    if (std::exchange(stream.discards_long, true)) {
      session_.machine_.reset(stream, http2::no_error);
    } else {
      any = true;
    }
  });
  if (any) start_discards();
  session_.send_soon();
}

}  // namespace hawser::protocol::grpc
