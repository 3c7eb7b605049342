#include <algorithm>
#include <exception>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "protocol/http/http_session.h"
#include "protocol/http/response.h"
#include "protocol/http/stream_exchange.h"

// Bodies of requests that are read in parts.
namespace hawser::protocol::http {

// ---- HTTP/1.1 ----

void HttpSession::take_part(Bytes bytes) {
  if (bytes.empty()) return;
  if (!parts_.add(bytes, account())) parts_.error = unkept_error(account());
  room_.notify_all();
  if (!parts_.error && parts_.bytes.size() < served_.options.body_buffer_bytes) return;
  parts_.paused = true;
  pause();
}

void HttpSession::end_parts() {
  parts_.ended = true;
  message_received();
  hold();
  room_.notify_all();
  if (parts_.begins) begin_parts_route();
}

void HttpSession::begin_parts_route() {
  parts_.begins = false;
  host().counters.calls.add(1);
  if (full(host().options.calls_per_connection_max, plan_.calls_beyond())) {
    return refuse(503, full_error(host().options.calls_per_connection_max));
  }
  run_route(*kept_head_, {}, {}, nullptr, {});
}

void HttpSession::ask_for_body() {
  if (std::exchange(parts_.asks, false)) write("HTTP/1.1 100 Continue\r\n\r\n");
}

Task<Result<std::string>> HttpSession::read_part(HttpBodyReader& reader) {
  const std::uint32_t call = call_of(reader);
  const std::stop_token& token = token_of(reader);
  const auto goes_on = [&] { return call_ == call && !token.stop_requested(); };
  const std::stop_callback wakes(token, [this] { room_.notify_all(); });
  if (goes_on() && parts_.waits()) {
    if (host().loop.now() - parts_.read_at >= IncomingBody::pause_min) message_received();
    ask_for_body();
    parts_.reading = true;
  }
  while (goes_on() && parts_.waits()) {
    co_await room_.wait();
  }
  if (call_ == call) parts_.reading = false;
  if (!goes_on())
    co_return fail(ErrorCode::cancelled, "the client has gone, or nobody waits for the response any more");
  Result<std::string> part = parts_.take(host().loop.now());
  if (part && !parts_.error && std::exchange(parts_.paused, false)) {
    message_received();
    resume();
  }
  co_return part;
}

// ---- HTTP/2 ----

bool StreamExchange::begin_parts_route() {
  const std::uint32_t call = call_;
  host_.port_host().counters.calls.add(1);
  if (const std::optional<Error> why = host_.refusal(plan_.calls_beyond())) {
    refuse(status_of(why->code), *why);
    return false;
  }
  run_route({}, nullptr, {});
  return call_ == call;
}

Task<Result<std::string>> StreamExchange::read_part(HttpBodyReader& reader) {
  const std::uint32_t call = call_of(reader);
  const std::stop_token& token = token_of(reader);
  const auto goes_on = [&] { return call_ == call && !gone_ && !token.stop_requested(); };
  const std::stop_callback wakes(token, [this] { room_.notify_all(); });
  if (goes_on() && parts_.waits()) {
    if (loop().now() - parts_.read_at >= IncomingBody::pause_min) host_.restart_pace();
    if (std::exchange(parts_.asks, false)) host_.send_continue(call);
    parts_.reading = true;
  }
  while (goes_on() && parts_.waits()) {
    co_await room_.wait();
  }
  if (call_ == call) parts_.reading = false;
  if (!goes_on())
    co_return fail(ErrorCode::cancelled, "the client has gone, or nobody waits for the response any more");
  Result<std::string> part = parts_.take(loop().now());
  if (part && !part->empty()) host_.return_window(call, part->size());
  co_return part;
}

}  // namespace hawser::protocol::http
