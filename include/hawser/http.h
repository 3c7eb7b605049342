#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/identity.h"
#include "hawser/loop.h"
#include "hawser/metadata.h"
#include "hawser/protocols.h"
#include "hawser/task.h"
#include "hawser/time.h"

// HTTP/1.1 on the port of a Server, and HTTP/2 if gRPC is enabled too: methods with JSON or protobuf bodies, and
// routes. Component hawser::http.
// docs/protocols/http.md.
namespace hawser {

namespace protocol::http {
class BodyDeflater;
class RouteResponder;
class RouteTable;
struct RequestAccess;
}  // namespace protocol::http

// Limits of HTTP connections. ServerOptions::message_bytes_max limits a body, and the other limits of ServerOptions
// hold too. A request that exceeds a limit is answered with 4xx and the connection closes.
struct HttpOptions {
  // ---- Requests: a longer or slower one is refused
  std::size_t line_bytes_max = 8 * 1024;         // The request line, one header field, one line of a chunked body.
  std::size_t header_bytes_max = 32 * 1024;      // The request line and all fields.
  std::size_t header_fields_max = 100;           // Number of fields.
  std::size_t chunk_extension_bytes_max = 1024;  // All chunks of one body together. Extensions are ignored.
  Duration header_timeout = std::chrono::seconds(10);  // From the first byte of a request to the end of its header.
  // Bytes of a body that a route reads in parts, if they wait for it: HTTP/1.1 stops reading the connection then. Over
  // HTTP/2 it is the window of the stream.
  std::size_t body_buffer_bytes = 256 * 1024;

  // ---- Connections that are idle, and clients that do not read
  Duration idle_timeout = std::chrono::seconds(75);  // Between two requests of a connection, and before the first.
  // The time in which a client must take 16 KiB of what waits to be sent to it, or all of it if that is less. A client
  // that takes less loses its connection; over HTTP/2 it loses the stream whose window it does not open. Checked in
  // intervals, so that it may take up to twice as long. `forever`: not limited.
  Duration write_timeout = std::chrono::seconds(60);
  // The client has ended its sending direction and waits for replies. Counted from the last byte that it took; then its
  // call is cancelled. A client that has closed its connection looks the same. 0: its call is cancelled at once.
  Duration half_closed_timeout = std::chrono::seconds(5);

  // ---- What is served, and how
  bool health = true;  // Serves GET /health: 200 "OK", and 503 while the server stops.
  // Accepts '/' and '\\' as %2F and %5C within a segment of a path, for routes whose parameters have them. A request
  // with one is refused otherwise.
  bool encoded_slashes = false;
  // Bodies of responses of text, JSON and XML are compressed for clients that accept gzip, if they have at least
  // gzip_bytes_min bytes or are sent in parts (HttpResponse::stream). Bodies of requests with Content-Encoding: gzip
  // are decompressed; message_bytes_max limits them before and after that. Without zlib (HAWSER_HTTP_GZIP) it is as if
  // it were false.
  bool gzip = true;
  std::size_t gzip_bytes_min = 1024;
  bool functions = true;  // Serves plain functions and coroutines with JSON too, at POST /namespace::function.
};

// A request, for the handler of a route. Belongs to the loop of its connection. Lives until the handler has returned.
class HttpRequest {
 public:
  HttpRequest(const HttpRequest&) = delete;
  HttpRequest& operator=(const HttpRequest&) = delete;
  ~HttpRequest();

  std::string_view method() const noexcept;
  // Without the query. Not decoded, but it has no segment that is empty, "." or "..", encoded or not, and no character
  // that HttpOptions::encoded_slashes forbids.
  std::string_view path() const noexcept;
  std::string_view query() const noexcept;  // Behind '?'. Not decoded.
  // The segment of the path that stands in place of {name} in the path of the route; nothing if the route has no such
  // parameter. Not decoded.
  std::optional<std::string_view> parameter(std::string_view name) const noexcept;
  // The part of the path behind the route's path if that ends with "/*"; otherwise empty. Not decoded.
  std::string_view rest() const noexcept;
  // The value of the header field of that name, compared without case; nothing if there is none. A field that was sent
  // several times is one list, as RFC 9110, 5.3 says: its values are joined by ", " in their order ("; " for Cookie).
  // Of a field that is not a list, such as Authorization or Content-Type, it is the first value.
  // Interceptors come first: what they have set is here, and what they have removed is not, if the field is metadata
  // (docs/protocols/http.md, "Methods").
  std::optional<std::string_view> header(std::string_view name) const;
  // The values of all header fields of that name, in their order.
  std::vector<std::string_view> header_values(std::string_view name) const;
  // All header fields, with their names as they were sent. The views are valid as long as the request.
  std::vector<std::pair<std::string_view, std::string_view>> headers() const;
  // The metadata of the call, as Context::metadata(): the fields that are metadata, as interceptors have changed them.
  // Fields beyond the limits of Metadata are not there. trace_of() finds the trace of the call in it.
  MetadataView metadata() const noexcept;
  Bytes body() const noexcept;  // Empty if the route has an HttpBodyHandler.
  std::string_view text() const noexcept { return as_text(body()); }

  std::string peer() const;
  // Who the client has proved to be, as Context::identity(): what the connection proves, or what an interceptor has
  // found out. Valid as long as the request.
  const Identity& identity() const noexcept;
  Loop& loop() const noexcept;
  // Is stopped when the connection ends or the stream of HTTP/2 is reset, when the deadline (header timeout-ms or
  // grpc-timeout) passes, or when the grace of a stopping server ends. A client of HTTP/1.1 that only ends its
  // direction of the connection may still wait for the response.
  std::stop_token token();
  // Is stopped when the server begins to stop, as Context::stopping().
  std::stop_token stopping() const noexcept;
  std::optional<Time> deadline() const noexcept;

 private:
  friend struct protocol::http::RequestAccess;
  struct State;
  explicit HttpRequest(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// Receives the body of a request in parts, for an HttpBodyHandler. Lives as long as the request. Belongs to the loop of
// its connection; used by one coroutine at a time.
class HttpBodyReader {
 public:
  HttpBodyReader(const HttpBodyReader&) = delete;
  HttpBodyReader& operator=(const HttpBodyReader&) = delete;

  // Waits for the next part and returns all bytes that have arrived. Empty: the body has ended. The client may send as
  // many bytes as fit into the buffer until the next call. A client that sent Expect: 100-continue is asked for the
  // body by the first call. Errors: `cancelled` if the client has gone, the deadline of the request has passed or the
  // server stops; `overloaded` if the bytes do not fit into ServerOptions::receive_bytes_max.
  Task<Result<std::string>> read();

 private:
  friend class protocol::http::RouteResponder;
  HttpBodyReader(protocol::http::RouteResponder& responder, std::uint32_t call, std::stop_token token) noexcept
      : responder_(responder), call_(call), token_(std::move(token)) {}

  protocol::http::RouteResponder& responder_;
  const std::uint32_t call_;
  const std::stop_token token_;
};

// Sends the body of a response in parts. Belongs to the loop of its connection, whose coroutines may use it. Lives
// until the coroutine of HttpResponse::stream has returned.
class HttpBodyWriter {
 public:
  HttpBodyWriter(const HttpBodyWriter&) = delete;
  HttpBodyWriter& operator=(const HttpBodyWriter&) = delete;

  // Sends the next part. Waits while too much waits to be sent (ServerOptions::send_backlog_bytes_max). `bytes` must
  // stay valid until then. Fails with `cancelled` if the client has gone. If the response is compressed, the client can
  // decompress the part as soon as it has arrived. Several coroutines may write: parts are not mixed.
  Task<Result<void>> write(std::string_view bytes);
  // Keeps a temporary, or a string passed by std::move(), in the task.
  template <std::same_as<std::string> Given>
  Task<Result<void>> write(Given&& bytes) {
    return write_kept(std::move(bytes));
  }

 private:
  friend class protocol::http::RouteResponder;
  Task<Result<void>> write_kept(std::string bytes);
  HttpBodyWriter(protocol::http::RouteResponder& responder, std::uint32_t call, bool chunked) noexcept
      : responder_(responder), call_(call), chunked_(chunked) {}

  protocol::http::RouteResponder& responder_;
  const std::uint32_t call_;
  const bool chunked_;
  protocol::http::BodyDeflater* deflater_ = nullptr;  // Compresses the parts; null: they are sent as they are.
  std::size_t turn_bytes_ = 0;                        // Bytes since the loop last ran something else.
  std::optional<std::uint64_t> left_;  // Bytes that are still to be written, if their number was announced.
};

struct HttpResponse {
  int status = 200;
  // Compressed if HttpOptions::gzip allows it. A field Content-Encoding, or Cache-Control: no-transform, prevents it.
  std::string body = {};
  std::string content_type = "text/plain; charset=utf-8";
  // Further header fields. A field with a character that is not allowed there is left out, as are Content-Length,
  // Transfer-Encoding and Connection.
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Sends the body, if it is set; `body` is ignored then. The body is chunked; with HTTP/1.0 it ends with the
  // connection. An exception ends the connection, so that the client sees that the body is not complete. Not called for
  // HEAD. Compressed as `body` is, but regardless of HttpOptions::gzip_bytes_min, because its length is not known
  // before.
  std::function<Task<void>(HttpBodyWriter&)> stream = {};
  // The number of bytes that `stream` writes, if it is known: the response has Content-Length then, is not chunked and
  // is not compressed. write() refuses further bytes. If the stream writes fewer, the client sees that the body is not
  // complete.
  std::optional<std::uint64_t> stream_bytes = {};
};

// Decodes %XX in a part of a path or of a query. Nothing if a % is not followed by two hexadecimal digits. A '+' is not
// changed. A decoded path may contain slashes, "..", zero bytes and bytes that are not UTF-8: HttpFiles
// (hawser/http_files.h) bears that.
std::optional<std::string> percent_decoded(std::string_view text);
// The value of the first parameter of that name in a query or in a form (application/x-www-form-urlencoded), decoded;
// '+' is a space. Nothing if there is none, or if it cannot be decoded.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

// Runs on the loop of the connection. An exception is answered with 500.
using HttpHandler = std::function<Task<HttpResponse>(HttpRequest&)>;
// Likewise for requests whose bodies are not kept whole, such as uploads. It runs when the header has arrived, and
// reads the body as it comes. message_bytes_max does not limit such a body, and it is not decompressed. If the handler
// returns before it has read all, the rest is not received: HTTP/1.1 closes the connection, HTTP/2 the stream.
using HttpBodyHandler = std::function<Task<HttpResponse>(HttpRequest&, HttpBodyReader&)>;

// Calls of operators that a server serves beyond ServerOptions::calls_max. The pages use the same reserve.
inline constexpr std::size_t operator_calls_reserve = 16;

// HTTP/1.1 with its routes, for Server::enable():
//   server.enable(hawser::http().route("GET", "/version", version));
class Http {
 public:
  explicit Http(HttpOptions options = {});
  // Serves requests with exactly that method and path. A GET route serves HEAD too. A path may end with "/*": it serves
  // every longer path that has no route of its own. A segment {name} of a path stands for any segment that is not
  // empty: see HttpRequest::parameter(). A path without parameters goes first, then one whose parameters come later.
  // Throws std::logic_error if the route exists, if `path` does not begin with '/', or if its parameters are malformed.
  // A route goes before a method of the same path. Call it before enable().
  Http& route(std::string_view method, std::string_view path, HttpHandler handler) &;
  Http&& route(std::string_view method, std::string_view path, HttpHandler handler) &&;
  Http& route(std::string_view method, std::string_view path, HttpBodyHandler handler) &;
  Http&& route(std::string_view method, std::string_view path, HttpBodyHandler handler) &&;
  // Like route(), for requests of operators, such as pages of the application that show or end its work. They are
  // served when ServerOptions::calls_max calls are in flight, as long as fewer than operator_calls_reserve more are.
  Http& operator_route(std::string_view method, std::string_view path, HttpHandler handler) &;
  Http&& operator_route(std::string_view method, std::string_view path, HttpHandler handler) &&;
  operator ProtocolSpec() const;

 private:
  HttpOptions options_;
  std::shared_ptr<protocol::http::RouteTable> routes_;
};

// Methods are served at POST /package.Service/Method; see docs/protocols/http.md.
inline Http http(HttpOptions options = {}) { return Http(options); }

}  // namespace hawser
