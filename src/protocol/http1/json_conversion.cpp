#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "hawser/with_timeout.h"
#include "protocol/http1/gzip.h"
#include "protocol/http1/http_session.h"

// The conversion of long JSON on a thread of the offload pool.
namespace hawser::http1 {

Task<void> HttpSession::convert_arguments(detail::IncomingRequest request) {
  const std::uint32_t call = request.call;
  try {
    Buffer json = request.head_block == nullptr
                      ? Buffer::copy_of(request.body)
                      : Buffer::share(request.head_block, request.body.data(), request.body.size());
    body_ = {};
    // The members may belong to the next request when serve() returns.
    const std::vector<std::byte> metadata = std::exchange(call_fields_.metadata, {});
    request.metadata = MetadataView(Bytes(metadata));
    detail::ReceiveCharge charge;
    if (!charge.keep(account(), json)) co_return refuse(503, unkept_error(account()));
    conversion_stop_ = std::stop_source();
    std::optional<detail::StopTimer> timer;
    if (request.deadline) {
      timer.emplace(host().loop, std::max(Duration::zero(), *request.deadline - host().loop.now()), conversion_stop_);
    }
    auto converting = offload_arguments(host().loop, this, conversion_stop_.get_token(), std::move(json), plan_.json);
    const Result<Buffer> arguments = co_await std::move(converting);
    if (call_ != call) co_return;  // The connection has ended.
    charge.reset();
    const bool late = timer && (timer->expired() || host().loop.now() >= *request.deadline);
    timer.reset();
    if (late) {
      const Error passed = call_error(ErrorCode::deadline_exceeded, "the deadline of the request has passed");
      co_return refuse(504, passed);
    }
    if (!arguments) co_return refuse(status_of(arguments.error().code), arguments.error());
    // Other calls have begun meanwhile.
    if (server_full(plan_.calls_beyond())) co_return refuse(503, server_full_error());
    request.body = arguments->bytes();
    request.head_block = arguments->block();
    serve(*plan_.method, request);
  } catch (const std::exception&) {
    fail_connection();
  }
}

Task<void> HttpSession::unpack_later(Buffer packed, std::size_t announced) {
  const std::uint32_t call = call_;
  try {
    body_ = {};
    detail::ReceiveCharge packed_charge;
    detail::ReceiveCharge charge;
    if (!packed_charge.keep(account(), packed) || !charge.add(account(), announced)) {
      co_return refuse(503, unkept_error(account()));
    }
    conversion_stop_ = std::stop_source();
    auto unpacking = offload_gunzip(host().loop, this, conversion_stop_.get_token(), std::move(packed), announced);
    const Result<Buffer> body = co_await std::move(unpacking);
    if (call_ != call) co_return;  // The connection has ended.
    packed_charge.reset();
    charge.reset();
    if (!body) co_return refuse(status_of(body.error().code), body.error());
    // Other calls have begun meanwhile.
    if (server_full(plan_.calls_beyond())) co_return refuse(503, server_full_error());
    run(*kept_head_, {}, body->bytes(), body->block());
  } catch (const std::exception&) {
    fail_connection();
  }
}

void HttpSession::reply_json(const Result<JsonText>& json) {
  if (!json) return refuse(500, json.error());
  if (json->gzip) {
    writer_.add("Content-Encoding", "gzip");
    writer_.add("Vary", "Accept-Encoding");
  }
  writer_.add_type("application/json");
  writer_.end(json->text.size(), keep_alive_);
  write(writer_.text());
  write(json->text);
  end_answer();
}

Task<void> HttpSession::convert_result(std::vector<std::byte> payload) {
  try {
    detail::ReceiveCharge charge;
    charge.add(account(), json_body_.size() + payload.size(), true);
    conversion_stop_ = std::stop_source();
    auto converting = offload_result(host().loop, this, conversion_stop_.get_token(), std::move(json_body_),
                                     std::move(payload), plan_.json, gzip_bytes_min(options_, call_fields_));
    const Result<JsonText> text = co_await std::move(converting);
    if (closed()) co_return;
    charge.reset();
    reply_json(text);
  } catch (const std::exception&) {
    fail_connection();
  }
}

}  // namespace hawser::http1
