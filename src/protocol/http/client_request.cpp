#include "protocol/http/client_request.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "protocol/http/field_values.h"
#include "protocol/http/gzip.h"

namespace hawser::protocol::http {
namespace {

bool is_own_field(std::string_view name) noexcept {
  return is_any_of(name, {"host", "content-length", "transfer-encoding", "connection"});
}

Result<void> check(const HttpClientRequest& request) {
  const auto refuse = [](std::string text) { return fail(ErrorCode::invalid_argument, std::move(text)); };
  const auto is_value = [](std::string_view text) { return std::ranges::all_of(text, is_value_character); };
  if (!is_token(request.method) || request.method == "CONNECT") {
    return refuse("the method \"" + request.method.substr(0, 100) + "\" is not a method that a request can have");
  }
  if (!is_value(request.content_type)) return refuse("content_type has a control character");
  for (const auto& [name, value] : request.headers) {
    if (!is_token(name)) return refuse("the header field \"" + name.substr(0, 100) + "\" is not a token");
    if (is_own_field(name) || (request.gzip && equal_without_case(name, "accept-encoding"))) {
      return refuse("the client sends the header field " + name + " itself: leave it out");
    }
    if (!is_value(value)) return refuse("the header field " + name + " has a control character");
  }
  return {};
}

}  // namespace

bool is_safe(std::string_view method) noexcept { return method == "GET" || method == "HEAD" || method == "OPTIONS"; }
bool is_idempotent(std::string_view method) noexcept {
  return is_safe(method) || method == "PUT" || method == "DELETE";
}

Result<ClientTarget> target_of(const HttpClientRequest& request, const HttpClientOptions& options) {
  TRY(check(request));
  TRY(Url&& url, parse_url(request.url));
  if (url.secure && options.security == nullptr) {
    return fail(ErrorCode::invalid_argument, "https needs the option `security`: set it to a TlsClient (hawser/tls.h)");
  }
  ClientTarget target{.url = std::move(url), .address = request.address, .key = {}};
  if (target.address.empty()) target.address = target.url.address;
  target.key = (target.url.secure ? "https://" + target.url.address + " at " : std::string()) + target.address;
  return target;
}

std::string head_of(const HttpClientRequest& request, const Url& url, const HttpUpload* upload) {
  std::string head = request.method + " " + url.target + " HTTP/1.1\r\nHost: " + url.authority + "\r\n";
  const auto add = [&head](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!request.content_type.empty()) add("Content-Type", request.content_type);
  if (request.gzip && can_gzip()) add("Accept-Encoding", "gzip");
  for (const auto& [name, value] : request.headers) add(name, value);
  if (upload != nullptr) {
    if (upload->length) {
      add("Content-Length", std::to_string(*upload->length));
    } else {
      add("Transfer-Encoding", "chunked");
    }
    if (upload->expect_continue) add("Expect", "100-continue");
  } else if (!request.body.empty() || !is_safe(request.method)) {
    add("Content-Length", std::to_string(request.body.size()));
  }
  return head + "\r\n";
}

Error failure_of(const ClientConnection& connection, const HttpClientRequest& request, std::string_view address) {
  if (const char* const violation = connection.violation()) {
    return Error::of_call(Initiator::peer,
                          connection.too_long() ? ErrorCode::limit_exceeded : ErrorCode::protocol_error,
                          "the response of " + std::string(address) + " can't be used: " + violation);
  }
  return Error::of_connection(
      Initiator::peer, is_safe(request.method) ? ErrorCode::unavailable : ErrorCode::outcome_unknown,
      std::string(address) + " ended the connection before the end of the response: " + connection.end_reason());
}

bool drop_gzip_fields(const HttpClientRequest& request, HttpClientResponse& response) {
  const std::optional<std::string_view> coding = response.header("content-encoding");
  if (!request.gzip || !can_gzip() || !coding || !is_any_of(*coding, {"gzip", "x-gzip"})) return false;
  // Several fields are several codings, one above the other.
  const auto is_coding = [](const auto& field) { return is_any_of(field.first, {"content-encoding"}); };
  if (std::ranges::count_if(response.headers, is_coding) != 1) return false;
  std::erase_if(response.headers,
                [](const auto& field) { return is_any_of(field.first, {"content-encoding", "content-length"}); });
  return true;
}

}  // namespace hawser::protocol::http
