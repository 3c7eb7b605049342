#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
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

namespace protocol::http {
class ConnectionPool;
class ClientStream;
}  // namespace protocol::http

namespace transport {
class ClientSecurity;
}

// Limits are those of one response or of one host. A response that exceeds a limit fails, and its connection closes.
struct HttpClientOptions {
  Duration connect_timeout = std::chrono::seconds(5);
  // For requests without HttpClientRequest::timeout. From send() to the response's end; from open() to the end of the
  // response's head; from upload() until the connection is open.
  Duration request_timeout = std::chrono::seconds(30);
  // An operation of an HttpClientStream fails if it has waited for so long and no byte of the request or of the
  // response was sent or received meanwhile. `forever`: not limited, for example for rare server-sent events.
  Duration stall_timeout = std::chrono::seconds(30);
  Duration idle_timeout = std::chrono::seconds(30);    // An unused connection closes after this time.
  std::size_t connections_per_host_max = 8;            // In use at the same time. Further requests wait.
  std::size_t idle_connections_max = 32;               // To all hosts together. The oldest closes first.
  std::size_t line_bytes_max = 8 * 1024;               // The status line, one header field.
  std::size_t header_bytes_max = 32 * 1024;            // The status line and all fields.
  std::size_t header_fields_max = 100;                 // Number of fields.
  std::size_t body_bytes_max = std::size_t{64} << 20;  // One body that send() returns, also after decompression.
  // Bytes of one body that is read in parts, after decompression. Such a body is not kept whole.
  std::uint64_t stream_bytes_max = UINT64_MAX;
  // Bytes of a body that have arrived and that no read() has returned. While there are as many, the connection is not
  // read, and the server must wait.
  std::size_t body_buffer_bytes = 256 * 1024;
  // Protects connections of https URLs: a TlsClient (hawser/tls.h). Null: such URLs are refused.
  std::shared_ptr<transport::ClientSecurity> security = {};
};

struct HttpClientRequest {
  std::string method = "GET";
  std::string url = {};  // "http[s]://host[:port][/path][?query]", percent-encoded where needed. No user, no fragment.
  std::string body = {};
  std::string content_type = {};  // Empty: the field is not sent.
  // Accepts a response that is compressed with gzip, and decompresses it. Such a response has no fields
  // Content-Encoding and Content-Length. Without zlib (HAWSER_HTTP_GZIP) it is as if it were false.
  bool gzip = false;
  // Further header fields. Not Host, Content-Length, Transfer-Encoding and Connection, which the client sends itself.
  // With `gzip` not Accept-Encoding either.
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Connects there instead of to the host of the URL: "host:port", "unix:/path" or "unix:@name". With https, the
  // certificate must still be that of the URL's host.
  std::string address = {};
  // From the call of HttpClient to the response's end. Empty: HttpClientOptions::request_timeout.
  std::optional<Duration> timeout = {};
  std::stop_token token = {};  // A stop ends the request. It is requested on the loop's thread.
};

struct HttpClientResponse {
  int status = 0;  // From 200 to 999. 600 and above are not defined: treat them like 5xx.
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};

  // The value of the first header field of that name, compared without case; nothing if there is none.
  std::optional<std::string_view> header(std::string_view name) const noexcept;
};

// The body of a request that is written in parts.
struct HttpUpload {
  std::optional<std::uint64_t> length = {};  // Bytes of the body. Empty: unknown, and the body is chunked.
  // Sends Expect: 100-continue. The first write() waits until the server asks for the body, or has not answered for
  // `continue_timeout`. If the server answers with a response, the body is not sent at all.
  bool expect_continue = false;
  Duration continue_timeout = std::chrono::seconds(1);
};

// A request whose response is read in parts, and whose body may be written in parts. Movable. Belongs to the loop of
// its HttpClient, and may outlive the HttpClient. At most one coroutine at a time reads, and at most one writes; a
// further operation fails with `invalid_argument`. If the server answers while it receives, one coroutine must read
// while another one writes.
//
// Destroying it ends the request: operations that wait fail with `cancelled`, and the connection closes unless the
// response has arrived completely. An operation that is destroyed while it waits in write() or finish() ends the
// request too.
//
// Errors of all operations, apart from those that are listed at each. After one of these, each later operation fails in
// the same way:
//  - `unavailable`, `outcome_unknown`: the connection ended, as for HttpClient::send().
//  - `deadline_exceeded`: HttpClientRequest::timeout has passed, or HttpClientOptions::stall_timeout.
//  - `cancelled`: by HttpClientRequest::token, or by the destruction.
//  - `limit_exceeded`: the response exceeds a limit of HttpClientOptions.
//  - `overloaded`: there is no memory to decompress the body.
//  - `protocol_error`: the response is malformed, or is not valid gzip.
class HttpClientStream {
 public:
  HttpClientStream(HttpClientStream&& other) noexcept;
  HttpClientStream& operator=(HttpClientStream&& other) noexcept;
  ~HttpClientStream();

  // Waits for the head of the response, and returns the status, from 200 to 999. Returns at once for a stream of
  // HttpClient::open(), because the head has arrived already.
  Task<Result<int>> wait_status();
  // The status; 0 before the head of the response has been awaited.
  int status() const noexcept;
  const std::vector<std::pair<std::string, std::string>>& headers() const noexcept;
  // The value of the first header field of that name, compared without case; nothing if there is none.
  std::optional<std::string_view> header(std::string_view name) const noexcept;

  // Waits for the next part of the response's body and returns the bytes that have arrived; at most 64 KiB if the body
  // is decompressed. Empty: the body has ended. Bytes that have arrived before an error are returned before the error,
  // unless this side has ended the request.
  Task<Result<std::string>> read();

  // For HttpClient::upload(). Sends the next part of the body, and waits until the system has accepted it: the client
  // keeps no copy. `bytes` must stay valid until then. Fails with `invalid_argument` if the body is complete or becomes
  // longer than HttpUpload::length. Fails with `not_sent` if the server has answered completely without the rest of the
  // body, or has answered instead of asking for the body: wait_status() and read() return the response. If the
  // connection breaks, wait_status() and read() return what has arrived before, and then the error.
  Task<Result<void>> write(std::string_view bytes);
  // Keeps a temporary, or a string passed by std::move(), in the task.
  template <std::same_as<std::string> Given>
  Task<Result<void>> write(Given&& bytes) {
    return write_kept(std::move(bytes));
  }
  // Ends the body. Fails as write() does, and with `invalid_argument` if it is shorter than HttpUpload::length.
  Task<Result<void>> finish();

 private:
  friend class protocol::http::ClientStream;
  explicit HttpClientStream(std::shared_ptr<protocol::http::ClientStream> stream) noexcept;
  Task<Result<void>> write_kept(std::string bytes);

  std::shared_ptr<protocol::http::ClientStream> stream_;
};

// Sends HTTP/1.1 requests, for JSON services, webhooks, exporters, downloads and uploads. Connections are kept alive
// and reused. No redirects, no cookies, no proxies. Component hawser::http. Used on the thread of its loop, which
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

  // Sends a request, and returns when the head of its response has arrived: the body is read in parts. Errors as
  // send(), before the head has arrived. HttpClientOptions::body_bytes_max does not limit the body.
  Task<Result<HttpClientStream>> open(HttpClientRequest request);
  // Opens a new connection, sends the head of a request, and returns. The body is then written in parts. Errors as
  // send(), of what happens until then, and `invalid_argument` if `request.body` is not empty.
  Task<Result<HttpClientStream>> upload(HttpClientRequest request, HttpUpload body = {});

  // Open connections that no request uses.
  std::size_t idle_connections() const noexcept;

 private:
  std::shared_ptr<protocol::http::ConnectionPool> pool_;
};

}  // namespace hawser
