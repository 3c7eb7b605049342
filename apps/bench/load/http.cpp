#include "hawser/http.h"

#include <fmt/format.h>

#include <utility>

#include "base/base64.h"
#include "base/try.h"
#include "bench/load/protocols.h"
#include "bench/run/options.h"
#include "hawser/http_client.h"

namespace hawser::bench {
namespace {

HttpClientOptions http_options(const ClientOptions& options) {
  HttpClientOptions result;
  result.connect_timeout = options.connect_timeout;
  result.request_timeout = options.call_timeout;
  result.idle_timeout = options.call_timeout;
  result.connections_per_host_max = 1;
  result.body_bytes_max = 2 * size_bytes_max;  // Base64 makes payloads longer.
  return result;
}

class JsonCaller final : public HttpCaller {
 public:
  JsonCaller(Loop& loop, const ClientOptions& options) : client_(loop, http_options(options)) {}

  Task<Result<void>> connect(std::string address) override {
    address_ = std::move(address);
    CO_TRY(co_await call("{}"));
    co_return Result<void>{};
  }

  std::string text_of(std::string_view payload) const override {
    std::string text = "{\"data\":\"";
    encode_base64(payload, text);
    return text + "\"}";
  }

  Task<Result<std::string>> call(std::string text) override {
    HttpClientRequest request;
    request.method = "POST";
    request.url = "http://hawser/bench.Echo/Call";
    request.address = address_;
    request.content_type = "application/json";
    request.body = std::move(text);
    CO_TRY(HttpClientResponse&& response, co_await client_.send(std::move(request)));
    if (response.status == 200) co_return std::move(response.body);
    co_return fail(ErrorCode::application, fmt::format("HTTP status {}: {}", response.status, response.body));
  }

 private:
  HttpClient client_;
  std::string address_;
};

}  // namespace

std::unique_ptr<HttpCaller> make_http_caller(Loop& loop, const ClientOptions& options) {
  return std::make_unique<JsonCaller>(loop, options);
}

void enable_http(Server& server) { server.enable(http()); }

}  // namespace hawser::bench
