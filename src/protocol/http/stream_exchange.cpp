#include "protocol/http/stream_exchange.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "hawser/detail/send_reply.h"
#include "hawser/with_timeout.h"
#include "protocol/http/field_values.h"
#include "protocol/http/gzip.h"
#include "protocol/http/response.h"
#include "protocol/http/route_call.h"
#include "protocol/http/stream_request.h"

namespace hawser::protocol::http {

StreamExchanges::StreamExchanges(rpc::HttpStreamHost& host, const Served& served) : host_(host), served_(served) {}

rpc::HttpExchange* StreamExchanges::begin(std::uint32_t call, const rpc::HttpStreamHead& head) {
  if (resting_.empty()) {
    resting_.reserve(all_.size() + 1);
    all_.push_back(std::make_unique<StreamExchange>(*this));
    resting_.push_back(all_.back().get());
  }
  StreamExchange& exchange = *resting_.back();
  resting_.pop_back();
  exchange.resting_ = false;
  return exchange.begin(call, head) ? &exchange : nullptr;
}

void StreamExchanges::on_room() {
  for (StreamExchange* const exchange : waiting_) {
    exchange->waits_for_connection_ = false;
    exchange->room_.notify_all();
  }
  waiting_.clear();
}

bool StreamExchanges::working() const noexcept {
  return std::ranges::any_of(all_, [](const auto& exchange) { return exchange->conversion_.tasks != 0; });
}

StreamExchange::StreamExchange(StreamExchanges& owner)
    : owner_(owner), host_(owner.host_), room_(owner.host_.port_host().loop) {}

void StreamExchange::finish(bool whole) {
  const std::uint32_t call = std::exchange(call_, 0);
  if (call == 0) return;
  plan_ = {};
  fields_.clear();
  head_ = {};
  body_.clear();
  parts_.clear();
  answer_.body = {};
  room_.notify_all();
  host_.end_response(call, whole);
  rest_if_done();
}

void StreamExchange::rest_if_done() {
  if (call_ != 0 || active_ != 0 || conversion_.tasks != 0 || resting_) return;
  resting_ = true;
  owner_.resting_.push_back(this);  // There is room since the exchange was taken from there.
}

void StreamExchange::enter(detail::ActiveCall& call) {
  connection().enter(call);
  ++active_;
}

void StreamExchange::leave(detail::ActiveCall& call) noexcept {
  connection().leave(call);
  --active_;
  rest_if_done();
}

// ---- The request ----

bool StreamExchange::begin(std::uint32_t call, const rpc::HttpStreamHead& head) {
  call_ = call;
  gone_ = false;
  answer_.begin(head.method == "HEAD");
  queue_bytes_max_ = SIZE_MAX;
  body_.content_length = 0;
  fields_.clear();
  if (!read_head(head)) return false;
  if (plan_.reads_parts()) return begin_parts_route();
  if (plan_.kind != Kind::refused) return true;
  refuse(plan_.status, plan_.error, plan_.allow);
  return false;
}

bool StreamExchange::read_head(const rpc::HttpStreamHead& head) {
  StreamRequest request(head);
  const rpc::PortHost& port = host_.port_host();
  if (StreamRequest::Refusal why = request.read(owner_.served_.options.header_fields_max, fields_, port.loop);
      why.status != 0) {
    refuse(why.status, call_error(ErrorCode::invalid_argument, std::move(why.text)));
    return false;
  }
  body_.content_length = request.content_length();
  plan_ = plan_request(owner_.served_, port.dispatcher, request.brief());
  if (plan_.kind == Kind::refused) return true;
  const std::size_t bytes_max = port.options.message_bytes_max;
  if (!plan_.reads_parts() && body_.content_length > bytes_max) {
    refuse(413, too_long_body(body_.content_length, bytes_max));
    return false;
  }
  if (plan_.kind == Kind::route) head_ = request.keep(plan_.gunzip);
  if (plan_.reads_parts()) {
    parts_.begin(port.loop.now(), request.expects());
  } else if (request.expects()) {
    host_.send_continue(call_);
  }
  return true;
}

// Ensures that the body has memory for `bytes` bytes. False if there is none: the request has been refused then.
bool StreamExchange::grow_body(std::size_t bytes) {
  detail::ReceiveAccount& account = host_.receive_account();
  const std::size_t size = body_.collected.size_for(bytes, body_.content_length, account);
  if (size <= body_.collected.capacity()) return true;
  const std::size_t more = size - body_.collected.capacity();
  if ((size > small_body_bytes && !leaves_rest(account, more)) || !body_.charge.add(account, more)) {
    refuse(503, host_.no_memory());
    return false;
  }
  body_.collected.grow(size);
  return true;
}

std::size_t StreamExchange::on_body(Bytes bytes) {
  if (call_ == 0 || gone_ || !parts_.active) {
    append_body(bytes);
    return bytes.size();
  }
  if (!parts_.error && !parts_.add(bytes, host_.receive_account())) parts_.error = host_.no_memory();
  room_.notify_all();
  return 0;
}

void StreamExchange::append_body(Bytes bytes) {
  if (call_ == 0 || bytes.empty()) return;
  const std::size_t bytes_max = host_.port_host().options.message_bytes_max;
  if (bytes.size() > bytes_max - body_.collected.size()) {
    return refuse(413, too_long_body(body_.collected.size() + bytes.size(), bytes_max));
  }
  if (!grow_body(body_.collected.size() + bytes.size())) return;
  body_.collected.append(bytes);
}

void StreamExchange::on_end() {
  if (call_ == 0) return;
  if (parts_.active) {
    parts_.ended = true;
    room_.notify_all();
    return;
  }
  rpc::PortHost& host = host_.port_host();
  if (plan_.is_fixed()) {
    const FixedAnswer answer = fixed_answer(host, plan_);
    return respond(answer.status, "text/plain", answer.text);
  }
  host.counters.calls.add(1);
  if (!host_.begins_later(call_)) begin_late();
}

void StreamExchange::begin_late() {
  if (call_ == 0) return;
  const Buffer kept = body_.collected.memory();  // An answer in place releases it before the handler returns.
  body_.charge.reset();
  if (const std::optional<Error> why = host_.refusal(plan_.calls_beyond())) return refuse(status_of(why->code), *why);
  const Bytes body = body_.collected.bytes();
  const std::optional<rpc::BodyForm> form = form_of(plan_, body, host_.port_host().options.message_bytes_max);
  if (!form) return refuse(413, unpacked_too_long(host_.port_host().options.message_bytes_max));
  if (!form->plain()) body_.collected.clear();  // The call keeps the body until it has been converted.
  if (plan_.kind == Kind::route) return run_route(body, kept.block(), *form);
  run_method(body, kept.block(), *form);
}

const HttpOptions& StreamExchange::http_options() const noexcept { return owner_.served_.options; }

void StreamExchange::on_gone() {
  if (call_ == 0) return;
  gone_ = true;
  conversion_.stop.request_stop();
  room_.notify_all();
  // Otherwise the end of the call, or of the conversion, is awaited.
  if (active_ == 0 && conversion_.tasks == 0) finish(false);
}

detail::IncomingRequest StreamExchange::incoming(Bytes body, Block* block) {
  detail::ReceiveAccount& account = host_.receive_account();
  return {.sink = *this,
          .call = call_,
          .deadline = fields_.deadline,
          .body = body,
          .metadata = MetadataView(Bytes(fields_.metadata)),
          .head_block = block,
          .account = account.bounded() ? &account : nullptr,
          .decode_limits = &host_.port_host().options.decode_limits};
}

void StreamExchange::run_method(Bytes body, Block* block, const rpc::BodyForm& form) {
  // A call that is answered in place resets plan_ and fields_.
  const rpc::Dispatcher::Method& method = *plan_.method;
  const std::vector<std::byte> metadata = std::move(fields_.metadata);
  fields_.metadata = {};
  detail::IncomingRequest request = incoming(body, block);
  request.metadata = MetadataView(Bytes(metadata));
  host_.run_method(method, request, form);
}

void StreamExchange::run_route(Bytes body, Block* block, const rpc::BodyForm& form) {
  const std::vector<std::byte> metadata = std::move(fields_.metadata);
  fields_.metadata = {};
  detail::IncomingRequest request = incoming(body, block);
  request.metadata = MetadataView(Bytes(metadata));
  host_.run_route(*plan_.method, request, form, *this);
}

void StreamExchange::start(const detail::IncomingRequest& request, const rpc::BodyForm& form) {
  serve_route(*this, *plan_.route, plan_.pattern, request, std::move(head_), form);
}

// ---- The answer ----

void StreamExchange::begin_head() { response_.begin(unix_seconds_now()); }

void StreamExchange::send_whole(unsigned status, std::string_view body) {
  response_.add_length(body.size());
  const bool bare = answer_.head_only || body.empty();
  Buffer kept = bare ? Buffer() : Buffer::copy_of(as_bytes(body));
  answer_.head_sent = true;  // An exception from here on resets the stream (reply_error).
  host_.send_head(call_, status, response_.fields(), bare);
  if (!bare) host_.send_body(call_, std::move(kept), {}, nullptr);
  answer_.given = true;
  finish(true);
}

void StreamExchange::respond(unsigned status, std::string_view type, std::string_view body, std::string_view allow) {
  begin_head();
  if (!allow.empty()) response_.add("allow", allow);
  if (status == 503) response_.add("retry-after", "1");
  response_.add_type(type);
  send_whole(status, body);
}

void StreamExchange::refuse(unsigned status, const Error& error, std::string_view allow) {
  host_.port_host().counters.calls_refused.add(1);
  // The views may lie in the plan, which the end of the response clears.
  const std::string text = error_json(error);
  const std::string methods(allow);
  respond(status, json_type, text, methods);
}

std::byte* StreamExchange::begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                                       const detail::ReplyExtras& extras) {
  if (!answers(call)) return nullptr;
  const std::size_t value_bytes = size.body + size.payload;
  const std::size_t attachment_bytes = extras.attachment.size();
  if (const std::optional<Error> why = unsendable_result(size, attachment_bytes)) {
    reply_error(call, *why);
    return nullptr;
  }
  answer_.bytes = value_bytes + attachment_bytes;
  begin_head();
  if (extras.metadata != nullptr) {
    for (const auto& [key, value] : *extras.metadata) response_.add(key, value);
  }
  answer_.converts = plan_.kind == Kind::json && attachment_bytes == 0;
  if (!answer_.converts) {
    response_.add_type(plan_.kind == Kind::json ? "application/octet-stream" : "application/proto");
    response_.add_length(answer_.bytes);
  }
  answer_.body = Buffer::allocate(size.body);
  // Last: nothing throws any more. An exception before is answered by reply_error().
  host_.count_answer(call, answer_.bytes);
  answer_.given = true;
  return answer_.body.mutable_data();
}

void StreamExchange::end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  bool notifies = owner != nullptr;  // The owner has not been notified and is not known to the stream.
  try {
    if (!answer_.converts) {
      answer_.head_sent = true;
      host_.send_head(call_, 200, response_.fields(), answer_.bytes == 0);
      if (answer_.bytes != 0) {
        host_.send_body(call_, std::exchange(answer_.body, {}), pieces, owner);
        notifies = false;
      } else if (std::exchange(notifies, false)) {
        owner->on_send_complete();
      }
      return finish(true);
    }
    std::vector<std::byte> payload;
    for (const ConstBuffer& piece : pieces) payload.insert(payload.end(), piece.data, piece.data + piece.size);
    if (std::exchange(notifies, false)) owner->on_send_complete();
    if (gone_) return finish(false);
    if (answer_.body.size() + payload.size() > rpc::json_in_place_max) {
      ++conversion_.tasks;
      return conversion_.scope.spawn(convert_result(std::move(payload)));
    }
    const std::size_t bytes_min = gzip_bytes_min(http_options(), fields_);
    reply_json(pack_json(plan_.json->result_to_json(answer_.body.bytes(), payload), bytes_min));
  } catch (const std::exception&) {
    fail_connection();
    if (notifies) owner->on_send_complete();
  }
}

Task<void> StreamExchange::convert_result(std::vector<std::byte> payload) {
  try {
    const rpc::ConversionMemory::Holder holder(host_.port_host().conversion_memory);
    rpc::WorkCharge charge = rpc::charge_of_result(host_.receive_account(), answer_.body.size() + payload.size());
    conversion_.stop = std::stop_source();
    const Result<JsonText> text = co_await offload_result(
        host_.port_host().loop, &connection(), conversion_.stop.get_token(), std::move(answer_.body),
        std::move(payload), plan_.json, gzip_bytes_min(http_options(), fields_), charge.use());
    --conversion_.tasks;
    charge.reset();
    if (gone_) co_return finish(false);
    reply_json(text);
  } catch (const std::exception&) {
    fail_connection();
  }
}

void StreamExchange::reply_json(const Result<JsonText>& json) {
  if (!json) return refuse(500, json.error());
  if (json->gzip) {
    response_.add("content-encoding", "gzip");
    response_.add("vary", "Accept-Encoding");
  }
  response_.add_type(json_type);
  send_whole(200, json->text);
}

void StreamExchange::reply_error(std::uint32_t call, const Error& error) {
  if (!answers(call)) return;
  const Error told = gone_ ? error : error_for_client(error, fields_.deadline && loop().now() >= *fields_.deadline);
  host_.count_failure(call, told.code, error);
  if (answer_.head_sent) return finish(false);  // The client sees that the body is not complete.
  respond(status_of(told.code), json_type, error_json(told));
}

// ---- Routes ----

bool StreamExchange::begin_route(std::uint32_t call, const HttpResponse& response) {
  if (!answers(call)) return false;
  if (const std::optional<Error> why = unsendable_status(response.status)) {
    reply_error(call, *why);
    return false;
  }
  begin_head();
  for (const auto& [name, value] : response.headers) response_.add(name, value);
  return true;
}

void StreamExchange::reply_route(std::uint32_t call, const HttpResponse& response) {
  if (!begin_route(call, response)) return;
  const bool bare = response.status == 204 || response.status == 304;
  host_.count_answer(call, bare || answer_.head_only ? 0 : response.body.size(), code_of(response.status));
  if (!bare) {
    response_.add_type(response.content_type);
    return send_whole(static_cast<unsigned>(response.status), response.body);
  }
  answer_.head_sent = true;
  host_.send_head(call_, static_cast<unsigned>(response.status), response_.fields(), true);
  answer_.given = true;
  finish(true);
}

Task<void> StreamExchange::stream_route(std::uint32_t call, const HttpRequest& request, const HttpResponse& response) {
  // The stream may read the body, and the client can't be asked for it behind the head.
  if (answers(call) && std::exchange(parts_.asks, false)) host_.send_continue(call);
  if (!begin_route(call, response)) co_return;
  const bool bare = response.status == 204 || response.status == 304;
  if (!bare) response_.add_type(response.content_type);
  if (!bare && response.stream_bytes) response_.add_length(*response.stream_bytes);
  answer_.head_sent = true;
  const bool without_body = bare || answer_.head_only;
  host_.send_head(call_, static_cast<unsigned>(response.status), response_.fields(), without_body);
  bool whole = true;
  if (!without_body) {
    HttpBodyWriter writer = writer_for(call, false);
    left_of(writer) = response.stream_bytes;
    try {
      co_await response.stream(writer);
    } catch (...) {
      static_cast<void>(route_error(*this, request, "a route", "the stream of the response", detail::exception_text()));
      whole = false;
    }
    whole = whole && left_of(writer).value_or(0) == 0;
  }
  if (!answers(call)) co_return;
  host_.count_answer(call, 0, code_of(response.status));
  answer_.given = true;
  finish(whole && !gone_);
}

Task<Result<void>> StreamExchange::write_part(HttpBodyWriter& writer, std::string_view bytes) {
  const auto writes = [&] { return call_ == call_of(writer) && !answer_.given && !gone_; };
  while (writes()) {
    if (!host_.stream_has_room(call_, queue_bytes_max_)) {
      co_await room_.wait();
    } else if (!host_.connection_has_room()) {
      if (!std::exchange(waits_for_connection_, true)) owner_.waiting_.push_back(this);
      co_await room_.wait();
    } else if (turn_bytes(writer) >= turn_bytes_max) {
      co_await loop().sleep(Duration::zero());
      turn_bytes(writer) = 0;
    } else {
      break;
    }
  }
  if (!writes()) co_return fail(ErrorCode::cancelled, "the client has gone, or the response has ended");
  if (bytes.empty()) co_return Result<void>();
  turn_bytes(writer) += bytes.size();
  host_.send_body(call_, Buffer::copy_of(as_bytes(bytes)), {}, nullptr);
  co_return Result<void>();
}

}  // namespace hawser::protocol::http
