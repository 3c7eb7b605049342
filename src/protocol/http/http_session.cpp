#include "protocol/http/http_session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "compress/deflate.h"
#include "hawser/detail/json_transcoder.h"
#include "hawser/detail/send_reply.h"
#include "protocol/http/field_values.h"
#include "protocol/http/gzip.h"
#include "protocol/http/route_call.h"

namespace hawser::protocol::http {
namespace {

// A client must take so many bytes, or all that wait, within HttpOptions::write_timeout.
constexpr std::size_t taken_bytes_least = 16 * 1024;
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

}  // namespace

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

HttpSession::HttpSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                         const Served& served)
    : ByteSession(host, std::move(stream), first),
      options_(served.options),
      served_(served),
      parser_(limits_of(served.options)),
      phase_begin_(host.loop.now()),
      timer_(*this),
      room_(host.loop) {
  timer_.start(host.loop, host.loop.after(check_interval()));
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
        if (phase_ == Phase::idle && !in.empty()) set_phase(Phase::head);
        if (parts_wait_) begin_parts_route();
        return used;
      case RequestParser::Event::error: on_parse_error(); return bytes.size();
      case RequestParser::Event::head:
        head = in.first(step.consumed);
        if (!on_head(head, in.subspan(step.consumed))) return bytes.size();
        break;
      case RequestParser::Event::body:
        if (parts_.active) {
          take_part(step.data);
          if (parts_paused_) {
            // The end of a body of known length has no bytes of its own: take() would not be called for it.
            if (parser_.body_left() == 0 && parser_.next({}).event == RequestParser::Event::end) {
              end_parts();
            } else if (parts_wait_) {
              begin_parts_route();
            }
            return used + step.consumed;
          }
        } else if (collects_) {
          append_body(step.data);
          if (finishing() || closed()) return bytes.size();
          if (refuse_too_long(body_bytes_ + parser_.body_left())) return bytes.size();
        } else {
          body = step.data;
        }
        break;
      case RequestParser::Event::end:
        used += step.consumed;
        if (parts_.active) {
          end_parts();
        } else if (collects_) {
          on_request(*kept_head_, {}, body_.bytes().first(body_bytes_), body_.block());
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
  minor_ = head.minor;
  head_only_ = head.method == "HEAD";
  keep_alive_ = head.keep_alive && !going_away_;
  plan_ = plan_request(served_, host().dispatcher, head);
  if (plan_.reads_parts()) {
    collects_ = parts_wait_ = true;
    kept_head_ = KeptHead(head, head_bytes);
    parts_.begin(host().loop.now(), head.expects_continue && rest.empty());
    set_phase(Phase::running);
    return true;
  }
  if (refuse_too_long(head.content_length)) return false;
  collects_ = head.chunked || rest.size() < head.content_length;
  if (!collects_) return true;
  if (plan_.kind == Kind::refused &&
      (head.chunked || head.expects_continue || head.content_length > ignored_body_bytes_max)) {
    keep_alive_ = false;
    refuse(plan_.status, plan_.error, plan_.allow);
    return false;
  }
  set_phase(Phase::body);
  kept_head_ = KeptHead(head, head_bytes);
  body_bytes_ = 0;
  if (head.expects_continue && rest.empty()) write("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

MutableBytes HttpSession::direct_space() {
  const bool direct = phase_ == Phase::body && collects_ && !kept_head_->chunked && plan_.kind != Kind::refused;
  if (!direct || !grow_body(body_bytes_ + 1)) return {};
  const std::size_t room = body_.size() - body_bytes_;
  return body_.mutable_bytes().subspan(body_bytes_,
                                       static_cast<std::size_t>(std::min<std::uint64_t>(room, parser_.body_left())));
}

void HttpSession::direct_received(std::size_t bytes) {
  body_bytes_ += bytes;
  parser_.skip_body(bytes);
  if (parser_.body_left() != 0 || parser_.next({}).event != RequestParser::Event::end) return;
  on_request(*kept_head_, {}, body_.bytes().first(body_bytes_), body_.block());
}

// Ensures that body_ has room for `bytes` bytes. If memory is scarce, it grows in proportion to what has arrived. False
// if there is none: the request has been refused then.
bool HttpSession::grow_body(std::size_t bytes) {
  if (bytes <= body_.size()) return true;
  constexpr std::size_t body_bytes_least = 4096;
  const auto announced = static_cast<std::size_t>(kept_head_->content_length);
  std::size_t size = std::max({bytes, 2 * body_.size(), body_bytes_least});
  if (!kept_head_->chunked) size = account().plenty(announced) ? announced : std::min(size, announced);
  if (!account().set_arriving(size)) {
    keep_alive_ = false;
    refuse(503, unkept_error(account()));
    return false;
  }
  Buffer larger = Buffer::allocate(size);
  if (body_bytes_ != 0) std::memcpy(larger.mutable_data(), body_.data(), body_bytes_);
  body_ = std::move(larger);
  return true;
}

void HttpSession::append_body(Bytes bytes) {
  if (bytes.empty() || plan_.kind == Kind::refused || !grow_body(body_bytes_ + bytes.size())) return;
  std::memcpy(body_.mutable_data() + body_bytes_, bytes.data(), bytes.size());
  body_bytes_ += bytes.size();
}

bool HttpSession::refuse_too_long(std::uint64_t bytes) {
  if (bytes <= host().options.message_bytes_max) return false;
  host().counters.protocol_errors.add(1);
  keep_alive_ = head_only_ = false;
  respond(413, "text/plain", "the body is longer than message_bytes_max\n");
  return true;
}

void HttpSession::on_parse_error() {
  host().counters.protocol_errors.add(1);
  keep_alive_ = head_only_ = false;
  if (head_sent_) {  // The response of a route that still receives the body.
    return end_session(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                            "the body is malformed: " + std::string(parser_.reason())));
  }
  respond(parser_.status(), "text/plain", std::string(parser_.reason()) + "\n");
}

void HttpSession::on_request(const RequestHead& head, Bytes head_bytes, Bytes body, Block* block) {
  const Buffer kept = body_;  // An answer in place releases it before the handler returns.
  account().set_arriving(0);
  switch (plan_.kind) {
    case Kind::refused: return refuse(plan_.status, plan_.error, plan_.allow);
    case Kind::health: {
      const HealthAnswer answer = health_answer(host(), plan_.service);
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
  if (!form) return refuse(413, unpacked_too_long());
  if (!form->plain()) body_ = {};  // The call keeps the body until it has been converted.
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
  if (parts_.active && !parts_.ended) keep_alive_ = false;
  writer_.begin(status, minor_, unix_seconds());
}

std::byte* HttpSession::begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                                    const detail::ReplyExtras& extras) {
  if (call_ == 0 || call != call_) return nullptr;
  const std::size_t value_bytes = size.body + size.payload;
  attachment_bytes_ = extras.attachment.size();
  if (size.too_large || (attachment_bytes_ != 0 && value_bytes != 0)) {
    reply_error(call, call_error(ErrorCode::limit_exceeded,
                                 size.too_large ? "the result can't be encoded: a sequence of 2^31 elements or more"
                                                : "a result and an attachment can't both be the body of a response"));
    return nullptr;
  }
  count_reply(call, value_bytes + attachment_bytes_);
  begin_answer(call);
  begin_head(200);
  if (extras.metadata != nullptr) {
    for (const auto& [key, value] : *extras.metadata) writer_.add(key, value);
  }
  if (plan_.kind == Kind::json && attachment_bytes_ == 0) {
    json_body_ = Buffer::allocate(size.body);
    return json_body_.mutable_data();
  }
  writer_.add_type(plan_.kind == Kind::json ? "application/octet-stream" : "application/proto");
  writer_.end(value_bytes + attachment_bytes_, keep_alive_);
  const std::string_view head = writer_.text();
  reply_bytes_ = head.size() + size.body;
  std::byte* const to = reserve(reply_bytes_);
  std::memcpy(to, head.data(), head.size());
  return to + head.size();
}

void HttpSession::end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  bool notifies = owner != nullptr;  // The owner has not been notified and is not known to the queue.
  try {
    if (plan_.kind != Kind::json || attachment_bytes_ != 0) {
      head_sent_ = true;
      commit(reply_bytes_);
      borrow(pieces, owner);
      notifies = false;
      return end_answer();
    }
    std::vector<std::byte> payload;
    for (const ConstBuffer& piece : pieces) payload.insert(payload.end(), piece.data, piece.data + piece.size);
    if (std::exchange(notifies, false)) owner->on_send_complete();
    if (json_body_.size() + payload.size() > rpc::json_in_place_max) {
      call_ = 0;  // It has been answered.
      return conversion_.spawn(convert_result(std::move(payload)));
    }
    const std::size_t bytes_min = gzip_bytes_min(options_, call_fields_);
    reply_json(pack_json(plan_.json->result_to_json(json_body_.bytes(), payload), bytes_min));
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
  if (waits && head_sent_) return fail_connection();
  if (begin_answer(call)) respond(status_of(told.code), json_type, error_json(told));
}

bool HttpSession::begin_route(std::uint32_t call, const HttpResponse& response) {
  if (call_ == 0 || call != call_) return false;
  if (response.status < 200 || response.status > 599) {
    reply_error(call, call_error(ErrorCode::internal, "the handler returned the status " +
                                                          std::to_string(response.status) + ": use 200 to 599"));
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
  count_route(call, code_of(status), bare || head_only_ ? 0 : response.body.size());
  begin_answer(call);
  if (bare) {
    writer_.end_bare(keep_alive_);
  } else {
    writer_.add_type(response.content_type);
    writer_.end(response.body.size(), keep_alive_);
  }
  head_sent_ = true;
  write(writer_.text());
  if (!bare && !head_only_) write(response.body);
  end_answer();
}

Task<void> HttpSession::stream_route(std::uint32_t call, const HttpRequest& request, const HttpResponse& response) {
  // The stream may read the body, and the client can't be asked for it behind the head.
  if (call_ == call) ask_for_body();
  if (!begin_route(call, response)) co_return;
  const bool chunked = minor_ == 1 && !response.stream_bytes;
  if (!chunked && !response.stream_bytes) keep_alive_ = false;
  const bool bare = response.status == 204 || response.status == 304;
  if (!bare) writer_.add_type(response.content_type);
  if (!bare && response.stream_bytes) {
    writer_.end(*response.stream_bytes, keep_alive_);
  } else if (!bare && chunked) {
    writer_.end_chunked(keep_alive_);
  } else {
    writer_.end_bare(keep_alive_);
  }
  head_sent_ = true;
  write(writer_.text());
  if (!bare && !head_only_) {
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
      thrown = "the stream of the response ended " + std::to_string(*left_of(writer)) + " bytes before stream_bytes";
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
  keep_alive_ = false;
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
  writer_.end(body.size(), keep_alive_);
  head_sent_ = true;
  write(writer_.text());
  if (!head_only_) write(body);
  end_answer();
}

void HttpSession::end_answer() {
  const bool was_paused = std::exchange(parts_paused_, false);  // The next request may begin below, and pause as well.
  call_ = 0;
  head_sent_ = false;
  call_fields_.deadline.reset();
  json_body_ = {};
  body_ = {};
  body_bytes_ = 0;
  collects_ = parts_wait_ = false;
  if (parts_.active) room_.notify_all();
  parts_.clear();
  kept_head_ = {};
  account().set_arriving(0);
  limit_backlog(SIZE_MAX);
  message_received();
  set_phase(Phase::idle);
  if (!keep_alive_ || going_away_) {
    finish();
  } else {
    release();
  }
  if (was_paused) resume();
}

// ---- Phases ----

void HttpSession::set_phase(Phase phase) noexcept {
  phase_ = phase;
  phase_begin_ = host().loop.now();
  if (phase == Phase::head) {
    timer_.start(host().loop, host().loop.after(std::min(options_.header_timeout, options_.write_timeout)));
  } else if (phase == Phase::idle && options_.idle_timeout < options_.header_timeout) {
    // The timer of the head would be too late.
    timer_.start(host().loop, host().loop.after(options_.idle_timeout));
  }
}

Duration HttpSession::check_interval() const noexcept {
  constexpr Duration least = std::chrono::milliseconds(1);
  return std::max(least, std::min({options_.header_timeout, options_.idle_timeout, options_.write_timeout}));
}

bool HttpSession::takes_too_little() noexcept {
  const Time now = host().loop.now();
  if (sent_bytes() - output_sent_ < output_wanted_) return now - output_since_ >= options_.write_timeout;
  output_since_ = now;
  output_sent_ = sent_bytes();
  output_wanted_ = std::min(backlog(), taken_bytes_least);
  return false;
}

// The timer runs all the time and is late in most phases, so that a request costs no operation of the timer.
void HttpSession::check_phase() {
  if (closed()) return;
  if (takes_too_little()) {
    return end_session(
        Error::of_connection(Initiator::peer, ErrorCode::unavailable,
                             "the client has taken less than 16 KiB of the waiting responses within write_timeout"));
  }
  if (finishing()) {
    if (backlog() != 0) timer_.start(host().loop, host().loop.after(check_interval()));
    return;
  }
  // The client is still reading the last response.
  if (phase_ == Phase::idle && backlog() != 0) phase_begin_ = host().loop.now();
  const Duration elapsed = host().loop.now() - phase_begin_;
  const bool waits = phase_ == Phase::idle || phase_ == Phase::head;
  const Duration limit = phase_ == Phase::head ? options_.header_timeout : options_.idle_timeout;
  if (!waits || elapsed < limit) {
    const Duration next = check_interval();
    timer_.start(host().loop, host().loop.after(waits ? std::min(limit - elapsed, next) : next));
    return;
  }
  if (phase_ == Phase::idle) return finish();
  keep_alive_ = head_only_ = false;
  respond(408, "text/plain", "the header of the request did not come within header_timeout\n");
}

void HttpSession::go_away() {
  if (std::exchange(going_away_, true)) return;
  begin_ending();
  keep_alive_ = false;
  if (phase_ == Phase::idle) finish();
}

void HttpSession::on_no_calls() {
  if (going_away_ && phase_ == Phase::idle) finish();
}

void HttpSession::on_end(const Error&) {
  timer_.stop();
  call_ = 0;
  conversion_stop_.request_stop();
  room_.notify_all();
  parts_.clear();
  body_ = {};
  json_body_ = {};
}

}  // namespace hawser::protocol::http
