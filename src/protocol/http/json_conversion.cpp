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

void HttpSession::reply_json(const Result<JsonText>& json) {
  if (!json) return refuse(500, json.error());
  if (json->gzip) {
    writer_.add("Content-Encoding", "gzip");
    writer_.add("Vary", "Accept-Encoding");
  }
  writer_.add_type("application/json");
  writer_.end(json->text.size(), form_.keep_alive);
  write(writer_.text());
  write(json->text);
  end_answer();
}

Task<void> HttpSession::convert_result(std::vector<std::byte> payload) {
  try {
    const rpc::ConversionMemory::Holder holder(host().conversion_memory);
    rpc::WorkCharge charge = rpc::charge_of_result(account(), answer_.json.size() + payload.size());
    conversion_stop_ = std::stop_source();
    const Result<JsonText> text = co_await offload_result(host().loop, this, conversion_stop_.get_token(),
                                                          std::move(answer_.json), std::move(payload), plan_.json,
                                                          gzip_bytes_min(served_.options, call_fields_), charge.use());
    charge.reset();
    if (closed()) co_return;
    reply_json(text);
  } catch (const std::exception&) {
    fail_connection();
  }
}

}  // namespace hawser::protocol::http
