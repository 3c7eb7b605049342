#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "hawser/with_timeout.h"
#include "protocol/http/gzip.h"
#include "protocol/http/http_session.h"

// The conversion of long JSON on a thread of the offload pool.
namespace hawser::protocol::http {

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
    const Result<Buffer> body =
        co_await offload_gunzip(host().loop, this, conversion_stop_.get_token(), std::move(packed), announced);
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
    const Result<JsonText> text =
        co_await offload_result(host().loop, this, conversion_stop_.get_token(), std::move(json_body_),
                                std::move(payload), plan_.json, gzip_bytes_min(options_, call_fields_));
    if (closed()) co_return;
    charge.reset();
    reply_json(text);
  } catch (const std::exception&) {
    fail_connection();
  }
}

}  // namespace hawser::protocol::http
