#include "hawser/http_client.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "base/what_of.h"
#include "exec/condition.h"
#include "hawser/any_stop.h"
#include "hawser/sync.h"
#include "hawser/with_timeout.h"
#include "protocol/http/client_connection.h"
#include "protocol/http/client_request.h"
#include "protocol/http/client_stream.h"
#include "protocol/http/connection_pool.h"
#include "protocol/http/gzip_stream.h"
#include "rpc/server/live_options.h"

namespace hawser {

using protocol::http::ClientConnection;
using protocol::http::ClientStream;
using protocol::http::ClientTarget;
using protocol::http::ConnectionPool;

std::optional<std::string_view> HttpClientResponse::header(std::string_view name) const noexcept {
  for (const auto& [key, value] : headers) {
    if (equal_without_case(key, name)) return value;
  }
  return std::nullopt;
}

namespace {

// Decompresses the body of a response.
Task<Result<void>> unpack(Loop& loop, HttpClientResponse& response, std::size_t bytes_max) {
  constexpr std::size_t part_bytes = 64 * 1024;
  const std::unique_ptr<protocol::http::BodyInflater> inflater = protocol::http::BodyInflater::make();
  if (inflater == nullptr) co_return fail(ErrorCode::overloaded, "no memory to decompress the body");
  inflater->give(std::exchange(response.body, {}));
  while (!inflater->wants_input()) {
    CO_TRY(const std::string& part, inflater->next(part_bytes));
    if (part.size() > bytes_max - response.body.size()) {
      co_return fail(Error::of_call(Initiator::peer, ErrorCode::limit_exceeded,
                                    "the decompressed body exceeds HttpClientOptions::body_bytes_max (" +
                                        count_text(bytes_max, "byte") + "): raise it, or read the body in parts"));
    }
    response.body += part;
    co_await loop.sleep(Duration::zero());
  }
  if (!inflater->at_end()) {
    co_return fail(Error::of_call(Initiator::peer, ErrorCode::protocol_error, "the compressed body is not complete"));
  }
  co_return Result<void>();
}

// One request of send() and its outcome.
struct Exchange {
  ConnectionPool& pool;
  HttpClientRequest& request;
  const ClientTarget& target;
  const std::string& head;
  Time deadline;
  bool sent = false;  // A connection has been asked to send.
  Result<HttpClientResponse> outcome = {};
  Event done = Event();
};

// Returns whether the exchange has an outcome.
Task<bool> attempt(Exchange& exchange, std::unique_ptr<ClientConnection> connection, bool reused) {
  const HttpClientRequest& request = exchange.request;
  const HttpClientOptions& options = exchange.pool.options();
  exchange.sent = true;
  exec::Condition changed(exchange.pool.loop());
  connection->begin({.head = exchange.head,
                     .body = request.body,
                     .is_head_method = request.method == "HEAD",
                     .body_bytes_max = options.body_bytes_max},
                    changed);
  while (!connection->finished()) {
    co_await changed.wait();
  }
  if (connection->complete()) {
    exchange.outcome = connection->take_response();
    exchange.pool.keep(exchange.target.key, std::move(connection));
    if (!protocol::http::drop_gzip_fields(request, *exchange.outcome) || exchange.outcome->body.empty()) co_return true;
    Result<void> unpacked = co_await unpack(exchange.pool.loop(), *exchange.outcome, options.body_bytes_max);
    if (!unpacked) exchange.outcome = fail(std::move(unpacked.error()));
    co_return true;
  }
  if (reused && !connection->answered() && protocol::http::is_idempotent(request.method)) co_return false;
  exchange.outcome = fail(protocol::http::failure_of(*connection, request, exchange.target.address));
  co_return true;
}

Task<void> run(Exchange& exchange) {
  const ConnectionPool::Place place = co_await exchange.pool.enter(exchange.target.key);
  if (std::unique_ptr<ClientConnection> connection = exchange.pool.take_idle(exchange.target.key)) {
    if (co_await attempt(exchange, std::move(connection), true)) co_return;
  }
  exchange.sent = false;
  Result<std::unique_ptr<ClientConnection>> connection =
      co_await exchange.pool.connect(exchange.target, exchange.deadline);
  if (!connection) {
    exchange.outcome = fail(std::move(connection.error()));
    co_return;
  }
  co_await attempt(exchange, std::move(*connection), false);
}

Task<void> perform(Exchange& exchange) {
  try {
    co_await run(exchange);
  } catch (const std::exception& thrown) {
    exchange.outcome = fail(ErrorCode::internal, std::string(what_of(thrown)));
  }
  exchange.done.set();
}

Task<Result<HttpClientResponse>> send_request(std::shared_ptr<ConnectionPool> pool, HttpClientRequest request) {
  Loop& loop = pool->loop();
  CO_TRY(pool->check_loop());
  CO_TRY(const ClientTarget& target, protocol::http::target_of(request, pool->options()));
  const std::string head = protocol::http::head_of(request, target.url);
  const Duration timeout = request.timeout.value_or(pool->options().request_timeout);
  Exchange exchange{.pool = *pool, .request = request, .target = target, .head = head, .deadline = loop.after(timeout)};
  std::stop_source time_is_up;
  const detail::StopTimer timer(loop, timeout, time_is_up);
  const AnyStop stop(request.token, time_is_up.get_token());
  ConnectionPool::ScopedWork work(*pool);
  work.tasks.spawn(perform(exchange));
  const Result<void> ended = co_await exchange.done.wait(stop.token());
  if (ended || exchange.done.is_set()) co_return std::move(exchange.outcome);
  const std::string sent = exchange.sent ? "; it may have been executed" : "; it was not sent";
  if (timer.expired()) {
    co_return fail(ErrorCode::deadline_exceeded,
                   "no complete response of " + target.address + " within " + rpc::option_text(timeout) +
                       " (HttpClientRequest::timeout): raise it, or find out why the server is slow" + sent);
  }
  co_return fail(ErrorCode::cancelled, "the request to " + target.address + " was cancelled" + sent);
}

}  // namespace

HttpClient::HttpClient(Loop& loop, HttpClientOptions options)
    : pool_(std::make_shared<ConnectionPool>(loop, std::move(options))) {}
HttpClient::~HttpClient() { pool_->close(); }

Task<Result<HttpClientResponse>> HttpClient::send(HttpClientRequest request) {
  return send_request(pool_, std::move(request));
}
Task<Result<HttpClientResponse>> HttpClient::get(std::string url) {
  HttpClientRequest request;
  request.url = std::move(url);
  return send(std::move(request));
}
Task<Result<HttpClientResponse>> HttpClient::post(std::string url, std::string body, std::string content_type) {
  HttpClientRequest request;
  request.method = "POST";
  request.url = std::move(url);
  request.body = std::move(body);
  request.content_type = std::move(content_type);
  return send(std::move(request));
}

Task<Result<HttpClientStream>> HttpClient::open(HttpClientRequest request) {
  return ClientStream::open(pool_, std::move(request), std::nullopt);
}
Task<Result<HttpClientStream>> HttpClient::upload(HttpClientRequest request, HttpUpload body) {
  return ClientStream::open(pool_, std::move(request), body);
}

std::size_t HttpClient::idle_connections() const noexcept { return pool_->idle_connections(); }

}  // namespace hawser
