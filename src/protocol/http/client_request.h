#pragma once

#include <string>
#include <string_view>

#include "hawser/error.h"
#include "hawser/http_client.h"
#include "protocol/http/client_connection.h"
#include "protocol/http/url.h"

// The requests of HttpClient before they are sent, and the errors of their connections.
namespace hawser::protocol::http {

// The destination of a request.
struct ClientTarget {
  Url url;
  std::string address;  // The connection goes there.
  std::string key;      // Names connections that the request may use.
};

// Checks a request. Errors: `invalid_argument`.
Result<ClientTarget> target_of(const HttpClientRequest& request, const HttpClientOptions& options);
// The head of a request. With `upload`, its body is written in parts.
std::string head_of(const HttpClientRequest& request, const Url& url, const HttpUpload* upload = nullptr);

// A request that changes nothing, and one that may be sent twice.
bool is_safe(std::string_view method) noexcept;
bool is_idempotent(std::string_view method) noexcept;

// The error of a request whose connection has finished without a complete response.
Error failure_of(const ClientConnection& connection, const HttpClientRequest& request, std::string_view address);

// True if the body of the response was asked for compressed and is so. The fields that describe it as it was sent are
// removed then.
bool drop_gzip_fields(const HttpClientRequest& request, HttpClientResponse& response);

}  // namespace hawser::protocol::http
