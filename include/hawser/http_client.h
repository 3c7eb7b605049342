#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser {

namespace transport {
class ClientSecurity;
}

// Limits are those of one response or of one host. A response that exceeds a limit fails, and its connection closes.
struct HttpClientOptions {
  Duration connect_timeout = std::chrono::seconds(5);
  Duration request_timeout =
      std::chrono::seconds(30);                        // Without one in the request. From send() to the response's end.
  Duration idle_timeout = std::chrono::seconds(30);    // An unused connection closes after this time.
  std::size_t connections_per_host_max = 8;            // In use at the same time. Further requests wait.
  std::size_t idle_connections_max = 32;               // To all hosts together. The oldest closes first.
  std::size_t line_bytes_max = 8 * 1024;               // The status line, one header field.
  std::size_t header_bytes_max = 32 * 1024;            // The status line and all fields.
  std::size_t header_fields_max = 100;                 // Number of fields.
  std::size_t body_bytes_max = std::size_t{64} << 20;  // One body.
  // Protects connections of https URLs: a TlsClient (hawser/tls.h). Null: such URLs are refused.
  std::shared_ptr<transport::ClientSecurity> security = {};
};

struct HttpClientRequest {
  std::string method = "GET";
  std::string url = {};  // "http[s]://host[:port][/path][?query]", percent-encoded where needed. No user, no fragment.
  std::string body = {};
  std::string content_type = {};  // Empty: the field is not sent.
  // Further header fields. Not Host, Content-Length, Transfer-Encoding and Connection, which the client sends itself.
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Connects there instead of to the host of the URL: "host:port", "unix:/path" or "unix:@name". With https, the
  // certificate must still be that of the URL's host.
  std::string address = {};
  std::optional<Duration> timeout = {};  // Empty: HttpClientOptions::request_timeout.
  std::stop_token token = {};            // A stop ends the request. It is requested on the loop's thread.
};

struct HttpClientResponse {
  int status = 0;  // From 200 to 599.
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};

  // The value of the first header field of that name, compared without case; nothing if there is none.
  std::optional<std::string_view> header(std::string_view name) const noexcept;
};

// Sends HTTP/1.1 requests, for JSON services, webhooks and exporters. Connections are kept alive and reused. No
// redirects, no cookies, no compression, no proxies. Component hawser::http. Used on the thread of its loop, which
// outlives it. Requests that run when it is destroyed go on.
class HttpClient {
 public:
  explicit HttpClient(Loop& loop, HttpClientOptions options = {});
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient();

  // Sends a request and receives its response. Every status is a response and no error. A request that no server can
  // have begun, because the reused connection had ended, is sent once more over a new connection if its method is GET,
  // HEAD, OPTIONS, PUT or DELETE.
  // Errors:
  //  - `invalid_argument`: the URL, the method or a header field is malformed. Nothing is sent.
  //  - `unavailable`: no connection; or it ended before the response, and the method is GET, HEAD or OPTIONS.
  //  - `outcome_unknown`: the connection ended before the response, and the method is another one.
  //  - `deadline_exceeded`, `cancelled`: the request may have been executed.
  //  - `limit_exceeded`: the response exceeds a limit of HttpClientOptions.
  //  - `protocol_error`: the response is malformed.
  Task<Result<HttpClientResponse>> send(HttpClientRequest request);
  Task<Result<HttpClientResponse>> get(std::string url);
  Task<Result<HttpClientResponse>> post(std::string url, std::string body,
                                        std::string content_type = "application/json");

  // Open connections that no request uses.
  std::size_t idle_connections() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hawser
