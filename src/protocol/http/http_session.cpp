#include "protocol/http/http_session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/decimal_text.h"
#include "compress/deflate.h"
#include "hawser/detail/json_transcoder.h"
#include "hawser/detail/send_reply.h"
#include "protocol/http/field_values.h"
#include "protocol/http/gzip.h"
#include "protocol/http/route_call.h"

namespace hawser::protocol::http {
namespace {

// A refused request whose body is at most so long keeps its connection: the body is read and ignored.
constexpr std::uint64_t ignored_body_bytes_max = 64 * 1024;

// The session limits bodies itself: the limit depends on the route.
HttpMessageLimits limits_of(const HttpOptions& options) {
  return {.line_bytes_max = options.line_bytes_max,
          .head_bytes_max = options.header_bytes_max,
          .fields_max = options.header_fields_max,
          .body_bytes_max = UINT64_MAX,
          .chunk_extension_bytes_max = options.chunk_extension_bytes_max};
}

std::string milliseconds_text(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) + " ms";
}

}  // namespace

HttpSession::HttpSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                         const Served& served)
    : ByteSession(host, std::move(stream), first),
      served_(served),
      parser_(limits_of(served.options)),
      phase_(served_.options, host.loop.now()),
      timer_(*this),
      room_(host.loop) {
  timer_.start(host.loop, host.loop.after(phase_.check_interval()));
}

// ---- Requests ----

std::size_t HttpSession::take(Bytes bytes, Block& block) {
  std::size_t used = 0;
  Bytes head;
  Bytes body;
  for (;;) {
    const Bytes in = bytes.subspan(used);
    const RequestParser::Step step = parser_.next(in);
    switch (step.event) {
      case RequestParser::Event::more:
        if (phase_.is(Phase::idle) && !in.empty()) set_phase(Phase::head);
        if (parts_.begins) begin_parts_route();
        return used;
      case RequestParser::Event::error: on_parse_error(); return bytes.size();
      case RequestParser::Event::head:
        head = in.first(step.consumed);
        if (!on_head(head, in.subspan(step.consumed))) return bytes.size();
        break;
      case RequestParser::Event::body:
        if (parts_.active) {
          take_part(step.data);
          if (parts_.paused) {
            // The end of a body of known length has no bytes of its own: take() would not be called for it.
            if (parser_.body_left() == 0 && parser_.next({}).event == RequestParser::Event::end) {
              on_request_end(used + step.consumed < bytes.size());
              end_parts();
            } else if (parts_.begins) {
              begin_parts_route();
            }
            return used + step.consumed;
          }
        } else if (collects_) {
          append_body(step.data);
          if (finishing() || closed()) return bytes.size();
          if (refuse_too_long(body_.size() + parser_.body_left())) return bytes.size();
        } else {
          body = step.data;
        }
        break;
      case RequestParser::Event::end:
        used += step.consumed;
        on_request_end(used < bytes.size());
        if (parts_.active) {
          end_parts();
        } else if (collects_) {
          on_request(*kept_head_, {}, body_.bytes(), body_.memory().block());
        } else {
          on_request(parser_.head(), head, body, &block);
        }
        return used;
    }
    used += step.consumed;
  }
}

bool HttpSession::on_head(Bytes head_bytes, Bytes rest) {
  const RequestHead& head = parser_.head();
  // Behind the last response, a request that has come already would be lost.
  const bool followed = !head.chunked && rest.size() > head.content_length;
  const bool goes_on = going_ == Going::no || (going_ == Going::with_response && followed);
  form_ = {.minor = head.minor,
           .keep_alive = head.keep_alive && goes_on,
           .head_only = head.method == "HEAD",
           .followed = followed};
  plan_ = plan_request(served_, host().dispatcher, head);
  if (plan_.reads_parts()) {
    collects_ = true;
    kept_head_ = KeptHead(head, head_bytes);
    parts_.begins = true;
    parts_.begin(host().loop.now(), head.expects_continue && rest.empty());
    set_phase(Phase::running);
    return true;
  }
  if (refuse_too_long(head.content_length)) return false;
  collects_ = head.chunked || rest.size() < head.content_length;
  if (!collects_) return true;
  if (plan_.kind == Kind::refused &&
      (head.chunked || head.expects_continue || head.content_length > ignored_body_bytes_max)) {
    form_.keep_alive = false;
    refuse(plan_.status, plan_.error, plan_.allow);
    return false;
  }
  set_phase(Phase::body);
  kept_head_ = KeptHead(head, head_bytes);
  if (head.expects_continue && rest.empty()) write("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

// Whether the next request has come is known at the end of this one.
void HttpSession::on_request_end(bool followed) noexcept {
  form_.followed = followed;
  if (followed && going_ == Going::with_response && !answer_.head_sent) form_.keep_alive = parser_.head().keep_alive;
}

MutableBytes HttpSession::direct_space() {
  const bool direct = phase_.is(Phase::body) && collects_ && !kept_head_->chunked && plan_.kind != Kind::refused;
  return direct && grow_body(body_.size() + 1) ? body_.space(parser_.body_left()) : MutableBytes();
}

void HttpSession::direct_received(std::size_t bytes) {
  body_.filled(bytes);
  parser_.skip_body(bytes);
  if (parser_.body_left() != 0 || parser_.next({}).event != RequestParser::Event::end) return;
  on_request(*kept_head_, {}, body_.bytes(), body_.memory().block());
}

// Ensures that body_ has memory for `bytes` bytes. False if there is none: the request has been refused then.
bool HttpSession::grow_body(std::size_t bytes) {
  const std::size_t size = body_.size_for(bytes, kept_head_->content_length, account());
  if (size <= body_.capacity()) return true;
  if (!account().set_arriving(size)) {
    form_.keep_alive = false;
    refuse(503, unkept_error(account()));
    return false;
  }
  body_.grow(size);
  return true;
}

void HttpSession::append_body(Bytes bytes) {
  if (bytes.empty() || plan_.kind == Kind::refused || !grow_body(body_.size() + bytes.size())) return;
  body_.append(bytes);
}

bool HttpSession::refuse_too_long(std::uint64_t bytes) {
  const std::size_t bytes_max = host().options.message_bytes_max;
  if (bytes <= bytes_max) return false;
  host().counters.protocol_errors.add(1);
  form_.make_last();
  respond(413, "text/plain", too_long_body(bytes, bytes_max).text + "\n");
  return true;
}

void HttpSession::on_parse_error() {
  host().counters.protocol_errors.add(1);
  form_.make_last();
  if (answer_.head_sent) {  // The response of a route that still receives the body.
    return end_session(
        Error::of_connection(Initiator::peer, ErrorCode::protocol_error, "the body is malformed: " + parser_.reason()));
  }
  respond(parser_.status(), "text/plain", parser_.reason() + "\n");
}

bool HttpSession::answer_slow(const Error& why) {
  if (answer_.head_sent) return false;  // As above.
  form_.make_last();
  respond(408, "text/plain", "the request comes too slowly: " + why.text + "\n");
  return true;
}

void HttpSession::on_request(const RequestHead& head, Bytes head_bytes, Bytes body, Block* block) {
  const Buffer kept = body_.memory();  // An answer in place releases it before the handler returns.
  account().set_arriving(0);
  switch (plan_.kind) {
    case Kind::refused: return refuse(plan_.status, plan_.error, plan_.allow);
    case Kind::health:
    case Kind::options: {
      const FixedAnswer answer = fixed_answer(host(), plan_);
      return respond(answer.status, "text/plain", answer.text);
    }
    case Kind::bytes:
    case Kind::json:
    case Kind::route: break;
  }
  host().counters.calls.add(1);
  if (full(host().options.calls_per_connection_max, plan_.calls_beyond())) {
    return refuse(503, full_error(host().options.calls_per_connection_max));
  }
  const std::optional<rpc::BodyForm> form = form_of(plan_, body, host().options.message_bytes_max);
  if (!form) return refuse(413, unpacked_too_long(host().options.message_bytes_max));
  if (!form->plain()) body_.clear();  // The call keeps the body until it has been converted.
  if (plan_.kind == Kind::route) return run_route(head, head_bytes, body, block, *form);
  run_method(head, body, block, *form);
}

std::uint32_t HttpSession::begin_call() noexcept {
  // One call after another uses slot 0.
  if (++generation_ == 0) generation_ = 1;
  call_ = wire::CallId(0, generation_).number();
  set_phase(Phase::running);
  if (!parts_.active || parts_.ended) hold();
  return call_;
}

detail::IncomingRequest HttpSession::incoming(const RequestHead& head, Bytes body, Block* block) {
  detail::IncomingRequest request{.sink = *this,
                                  .body = body,
                                  .head_block = block,
                                  .account = bounded_account(),
                                  .decode_limits = &host().options.decode_limits};
  call_fields_.clear();
  for (const Field& field : head.fields) call_fields_.add(field.name, field.value, host().loop);
  request.deadline = call_fields_.deadline;
  request.metadata = MetadataView(Bytes(call_fields_.metadata));
  request.call = begin_call();
  return request;
}

void HttpSession::run_method(const RequestHead& head, Bytes body, Block* block, const rpc::BodyForm& form) {
  // A connection that waits for its next request keeps no more metadata than that.
  constexpr std::size_t idle_metadata_bytes_max = 512;
  serve_form(*plan_.method, incoming(head, body, block), form);
  // A call that is not answered yet has copied its metadata.
  if (call_fields_.metadata.capacity() > idle_metadata_bytes_max) call_fields_.metadata = {};
}

void HttpSession::run_route(const RequestHead& head, Bytes head_bytes, Bytes body, Block* block,
                            const rpc::BodyForm& form) {
  KeptHead kept = collects_ ? std::move(kept_head_) : KeptHead(head, head_bytes);
  detail::IncomingRequest request = incoming(*kept, body, block);
  request.coded = !form.plain();
  if (plan_.gunzip) kept.drop_coding();
  const Route& route = *plan_.route;
  serve_by(*plan_.method, request, [&] { serve_route(*this, route, plan_.pattern, request, std::move(kept), form); });
}

// ---- Answers ----

bool HttpSession::begin_answer(std::uint32_t call) {
  if (call_ == 0 || call != call_) return false;
  calls().answered(wire::CallId::from_number(call));
  return true;
}

void HttpSession::begin_head(unsigned status) {
  // The rest of the body is not received.
  if (parts_.active && !parts_.ended) form_.keep_alive = false;
  writer_.begin(status, form_.minor, unix_seconds_now());
}

std::byte* HttpSession::begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                                    const detail::ReplyExtras& extras) {
  if (call_ == 0 || call != call_) return nullptr;
  const std::size_t value_bytes = size.body + size.payload;
  answer_.attachment_bytes = extras.attachment.size();
  if (const std::optional<Error> why = unsendable_result(size, answer_.attachment_bytes)) {
    reply_error(call, *why);
    return nullptr;
  }
  count_reply(call, value_bytes + answer_.attachment_bytes);
  begin_answer(call);
  begin_head(200);
  if (extras.metadata != nullptr) {
    for (const auto& [key, value] : *extras.metadata) writer_.add(key, value);
  }
  if (plan_.kind == Kind::json && answer_.attachment_bytes == 0) {
    answer_.json = Buffer::allocate(size.body);
    return answer_.json.mutable_data();
  }
  writer_.add_type(plan_.kind == Kind::json ? "application/octet-stream" : "application/proto");
  writer_.end(value_bytes + answer_.attachment_bytes, form_.keep_alive);
  const std::string_view head = writer_.text();
  answer_.reserved_bytes = head.size() + size.body;
  std::byte* const to = reserve(answer_.reserved_bytes);
  std::memcpy(to, head.data(), head.size());
  return to + head.size();
}

void HttpSession::end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  bool notifies = owner != nullptr;  // The owner has not been notified and is not known to the queue.
  try {
    if (plan_.kind != Kind::json || answer_.attachment_bytes != 0) {
      answer_.head_sent = true;
      commit(answer_.reserved_bytes);
      borrow(pieces, owner);
      notifies = false;
      return end_answer();
    }
    std::vector<std::byte> payload;
    for (const ConstBuffer& piece : pieces) payload.insert(payload.end(), piece.data, piece.data + piece.size);
    if (std::exchange(notifies, false)) owner->on_send_complete();
    if (answer_.json.size() + payload.size() > rpc::json_in_place_max) {
      call_ = 0;  // It has been answered.
      return conversion_.spawn(convert_result(std::move(payload)));
    }
    const std::size_t bytes_min = gzip_bytes_min(served_.options, call_fields_);
    reply_json(pack_json(plan_.json->result_to_json(answer_.json.bytes(), payload), bytes_min));
  } catch (const std::exception&) {
    fail_connection();
    if (notifies) owner->on_send_complete();
  }
}

void HttpSession::reply_error(std::uint32_t call, const Error& error) {
  const bool waits = call_ != 0 && call == call_;
  const bool late = call_fields_.deadline && host().loop.now() >= *call_fields_.deadline;
  const Error told = waits ? error_for_client(error, late) : error;
  count_error(call, told.code, error);
  // Memory ran out behind the head. The client sees that the body is not complete.
  if (waits && answer_.head_sent) return fail_connection();
  if (begin_answer(call)) respond(status_of(told.code), json_type, error_json(told));
}

bool HttpSession::begin_route(std::uint32_t call, const HttpResponse& response) {
  if (call_ == 0 || call != call_) return false;
  if (const std::optional<Error> why = unsendable_status(response.status)) {
    reply_error(call, *why);
    return false;
  }
  begin_head(static_cast<unsigned>(response.status));
  for (const auto& [name, value] : response.headers) writer_.add(name, value);
  return true;
}

void HttpSession::reply_route(std::uint32_t call, const HttpResponse& response) {
  if (!begin_route(call, response)) return;
  const int status = response.status;
  const bool bare = status == 204 || status == 304;
  count_route(call, code_of(status), bare || form_.head_only ? 0 : response.body.size());
  begin_answer(call);
  if (bare) {
    writer_.end_bare(form_.keep_alive);
  } else {
    writer_.add_type(response.content_type);
    writer_.end(response.body.size(), form_.keep_alive);
  }
  answer_.head_sent = true;
  write(writer_.text());
  if (!bare && !form_.head_only) write(response.body);
  end_answer();
}

Task<void> HttpSession::stream_route(std::uint32_t call, const HttpRequest& request, const HttpResponse& response) {
  // The stream may read the body, and the client can't be asked for it behind the head.
  if (call_ == call) ask_for_body();
  if (!begin_route(call, response)) co_return;
  const bool chunked = form_.minor == 1 && !response.stream_bytes;
  if (!chunked && !response.stream_bytes) form_.keep_alive = false;
  const bool bare = response.status == 204 || response.status == 304;
  if (!bare) writer_.add_type(response.content_type);
  if (!bare && response.stream_bytes) {
    writer_.end(*response.stream_bytes, form_.keep_alive);
  } else if (!bare && chunked) {
    writer_.end_chunked(form_.keep_alive);
  } else {
    writer_.end_bare(form_.keep_alive);
  }
  answer_.head_sent = true;
  write(writer_.text());
  if (!bare && !form_.head_only) {
    HttpBodyWriter writer = writer_for(call, chunked);
    left_of(writer) = response.stream_bytes;
    std::string thrown;
    try {
      co_await response.stream(writer);
    } catch (...) {
      thrown = route_error(*this, request, "a route", "the stream of the response", detail::exception_text()).text;
    }
    if (call_ != call) co_return;  // The connection has ended.
    if (thrown.empty() && left_of(writer).value_or(0) != 0) {
      thrown = "the stream of the response ended " + count_text(*left_of(writer), "byte") + " before stream_bytes";
    }
    if (!thrown.empty()) co_return break_off(call, chunked || response.stream_bytes, std::move(thrown));
    if (chunked) write(last_chunk);
  }
  count_route(call, code_of(response.status), 0);
  begin_answer(call);
  end_answer();
}

void HttpSession::break_off(std::uint32_t call, bool shows, std::string why) {
  const Error error = Error::of_connection(ErrorCode::internal, std::move(why));
  count_error(call, error.code, error);
  if (!shows) {
    send_now();
    return end_session(error);
  }
  // The head, what the stream has written, and earlier responses may still be queued.
  host().log.write(host().loop, LogLevel::info,
                   [&] { return "connection from " + peer_name() + " ends within a response: " + error.text; });
  begin_answer(call);
  form_.keep_alive = false;
  end_answer();
}

Task<Result<void>> HttpSession::write_part(HttpBodyWriter& writer, std::string_view bytes) {
  while (call_ == call_of(writer) && (!has_room() || turn_bytes(writer) >= turn_bytes_max)) {
    if (has_room()) {
      co_await host().loop.sleep(Duration::zero());
      turn_bytes(writer) = 0;
    } else {
      co_await room_.wait();
    }
  }
  if (call_ != call_of(writer)) co_return fail(ErrorCode::cancelled, "the client has gone, or the response has ended");
  if (bytes.empty()) co_return Result<void>();  // An empty chunk would end the body.
  turn_bytes(writer) += bytes.size();
  if (chunked(writer)) write(chunk_head(bytes.size()));
  write(bytes);
  if (chunked(writer)) write("\r\n");
  co_return Result<void>();
}

void HttpSession::refuse(unsigned status, const Error& error, std::string_view allow) {
  host().counters.calls_refused.add(1);
  respond(status, json_type, error_json(error), allow);
}

void HttpSession::respond(unsigned status, std::string_view type, std::string_view body, std::string_view allow) {
  begin_head(status);
  if (!allow.empty()) writer_.add("Allow", allow);
  if (status == 503) writer_.add("Retry-After", "1");
  writer_.add_type(type);
  writer_.end(body.size(), form_.keep_alive);
  answer_.head_sent = true;
  write(writer_.text());
  if (!form_.head_only) write(body);
  end_answer();
}

void HttpSession::end_answer() {
  const bool was_paused = parts_.paused;  // The next request may begin below, and pause as well.
  call_ = 0;
  answer_ = {};
  call_fields_.deadline.reset();
  body_.clear();
  collects_ = false;
  if (parts_.active) room_.notify_all();
  parts_.clear();
  kept_head_ = {};
  account().set_arriving(0);
  limit_backlog(SIZE_MAX);
  message_received();
  set_phase(Phase::idle);
  if (!form_.keep_alive || going_ == Going::at_once) {
    finish();
  } else {
    release();
  }
  if (was_paused) resume();
}

// ---- Phases ----

void HttpSession::set_phase(Phase phase) noexcept {
  const std::optional<Duration> check = phase_.enter(phase, host().loop.now());
  if (check) timer_.start(host().loop, host().loop.after(*check));
}

void HttpSession::check_phase() {
  if (closed()) return;
  if (pace_.too_slow(sent_bytes(), backlog(), host().loop.now(), served_.options.write_timeout)) {
    return end_session(Error::of_connection(
        Initiator::peer, ErrorCode::unavailable,
        "the client has taken less than 16 KiB of the waiting responses within write_timeout (" +
            milliseconds_text(served_.options.write_timeout) + "): read them sooner, or raise the timeout"));
  }
  if (finishing()) {
    if (backlog() != 0) timer_.start(host().loop, host().loop.after(phase_.check_interval()));
    return;
  }
  if (backlog() != 0) phase_.still_reading(host().loop.now());
  if (const Duration left = phase_.left(host().loop.now()); left > Duration::zero()) {
    return timer_.start(host().loop, host().loop.after(left));
  }
  if (phase_.is(Phase::idle)) return finish();
  form_.make_last();
  respond(408, "text/plain",
          "the header of the request did not come within header_timeout (" +
              milliseconds_text(served_.options.header_timeout) + "): send it sooner\n");
}

void HttpSession::go_away() {
  if (std::exchange(going_, Going::at_once) == Going::at_once) return;
  begin_ending();
  form_.keep_alive = false;
  if (phase_.is(Phase::idle)) finish();
}

void HttpSession::on_no_calls() {
  if (going_ == Going::at_once && phase_.is(Phase::idle)) finish();
}

// A client between two requests may be sending the next one: it is served, and its response says that it is the last.
bool HttpSession::leave() {
  if (going_ == Going::no) {
    going_ = Going::with_response;
    if (!answer_.head_sent && !form_.followed) form_.keep_alive = false;
  }
  return closed() || finishing();
}

void HttpSession::on_end(const Error&) {
  timer_.stop();
  call_ = 0;
  conversion_stop_.request_stop();
  room_.notify_all();
  parts_.clear();
  body_.clear();
  answer_.json = {};
}

}  // namespace hawser::protocol::http
