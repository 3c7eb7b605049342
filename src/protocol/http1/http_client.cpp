#include "hawser/http_client.h"

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <map>

#include "hawser/any_stop.h"
#include "hawser/runtime.h"
#include "hawser/scope.h"
#include "hawser/sync.h"
#include "hawser/timer.h"
#include "hawser/with_timeout.h"
#include "protocol/http1/client_connection.h"
#include "protocol/http1/field_values.h"
#include "protocol/http1/url.h"
#include "transport/network.h"
#include "transport/stream_security.h"

namespace hawser {

using http1::ClientConnection;
using http1::Url;

std::optional<std::string_view> HttpClientResponse::header(std::string_view name) const noexcept {
  for (const auto& [key, value] : headers) {
    if (http1::equal_without_case(key, name)) return value;
  }
  return std::nullopt;
}

struct HttpClient::State : std::enable_shared_from_this<HttpClient::State> {
  struct Host {
    explicit Host(std::size_t connections) : permits(connections) {}
    Semaphore permits;
    std::size_t users = 0;  // Requests that use or await a connection.
  };
  struct Idle {
    std::string key;
    std::unique_ptr<ClientConnection> connection;
    Time since;
  };
  struct SweepTimer : Timer {
    explicit SweepTimer(State& owner) noexcept : Timer(&SweepTimer::fire), state(owner) {}
    static void fire(Timer& timer) noexcept { static_cast<SweepTimer&>(timer).state.sweep(); }
    State& state;
  };

  State(Loop& on, const HttpClientOptions& with)
      : loop(on),
        network((on.options().runtime != nullptr ? on.options().runtime : Runtime::process_default())->network()),
        options(with),
        limits{.line_bytes_max = with.line_bytes_max,
               .head_bytes_max = with.header_bytes_max,
               .fields_max = with.header_fields_max,
               .body_bytes_max = with.body_bytes_max},
        sweep_timer(*this) {}

  static Task<Result<HttpClientResponse>> send(std::shared_ptr<State> state, HttpClientRequest request);
  struct Exchange;
  Task<void> perform(Exchange& exchange);
  Task<void> run(Exchange& exchange);
  Task<bool> attempt(Exchange& exchange, std::unique_ptr<ClientConnection> connection, bool reused);

  std::unique_ptr<ClientConnection> take_idle(const std::string& key);
  void keep(const std::string& key, std::unique_ptr<ClientConnection> connection);
  void sweep();
  void start_sweeping() {
    if (idle.empty() || closed || options.idle_timeout == forever) return;
    sweep_timer.start(loop, loop.after(options.idle_timeout - (loop.now() - idle.front().since)));
  }

  Loop& loop;
  const std::shared_ptr<transport::Network> network;
  const HttpClientOptions options;
  const http1::MessageLimits limits;
  bool closed = false;  // The client has been destroyed: nothing is kept.
  std::map<std::string, Host> hosts;
  std::deque<Idle> idle;  // The one that was used last is at the end.
  SweepTimer sweep_timer;
};

// One request and its outcome.
struct HttpClient::State::Exchange {
  HttpClientRequest& request;
  const Url& url;
  const std::string& address;  // The connection goes there.
  const std::string& key;      // Names connections that the request may use.
  const std::string& head;
  Duration timeout;
  bool sent = false;  // A connection has been asked to send.
  Result<HttpClientResponse> outcome = {};
  Event done = Event();
};

namespace {

bool is_own_field(std::string_view name) noexcept {
  return http1::is_any_of(name, {"host", "content-length", "transfer-encoding", "connection"});
}

// A request that changes nothing.
bool is_safe(std::string_view method) noexcept { return method == "GET" || method == "HEAD" || method == "OPTIONS"; }
bool is_idempotent(std::string_view method) noexcept {
  return is_safe(method) || method == "PUT" || method == "DELETE";
}

std::string head_of(const HttpClientRequest& request, const Url& url) {
  std::string head = request.method + " " + url.target + " HTTP/1.1\r\nHost: " + url.authority + "\r\n";
  const auto add = [&head](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!request.content_type.empty()) add("Content-Type", request.content_type);
  for (const auto& [name, value] : request.headers) add(name, value);
  if (!request.body.empty() || !is_safe(request.method)) add("Content-Length", std::to_string(request.body.size()));
  return head + "\r\n";
}

Result<void> check(const HttpClientRequest& request) {
  const auto refuse = [](std::string text) { return fail(ErrorCode::invalid_argument, std::move(text)); };
  const auto is_value = [](std::string_view text) { return std::ranges::all_of(text, http1::is_value_character); };
  if (!http1::is_token(request.method) || request.method == "CONNECT") {
    return refuse("the method \"" + request.method.substr(0, 100) + "\" is no method that a request can have");
  }
  if (!is_value(request.content_type)) return refuse("content_type has a control character");
  for (const auto& [name, value] : request.headers) {
    if (!http1::is_token(name)) return refuse("the header field \"" + name.substr(0, 100) + "\" is no token");
    if (is_own_field(name)) return refuse("the client sends the header field " + name + " itself: leave it out");
    if (!is_value(value)) return refuse("the header field " + name + " has a control character");
  }
  return {};
}

}  // namespace

std::unique_ptr<ClientConnection> HttpClient::State::take_idle(const std::string& key) {
  for (auto one = idle.rbegin(); one != idle.rend(); ++one) {
    if (one->key != key || !one->connection->reusable()) continue;
    std::unique_ptr<ClientConnection> found = std::move(one->connection);
    idle.erase(std::next(one).base());
    return found;
  }
  return nullptr;
}

void HttpClient::State::keep(const std::string& key, std::unique_ptr<ClientConnection> connection) {
  if (closed || !connection->reusable() || options.idle_connections_max == 0) return;
  connection->rest();
  std::erase_if(idle, [](const Idle& one) { return !one.connection->reusable(); });
  while (idle.size() >= options.idle_connections_max) idle.pop_front();
  idle.push_back({key, std::move(connection), loop.now()});
  if (!sweep_timer.running()) start_sweeping();
}

void HttpClient::State::sweep() {
  const Time now = loop.now();
  std::erase_if(
      idle, [&](const Idle& one) { return now - one.since >= options.idle_timeout || !one.connection->reusable(); });
  start_sweeping();
}

// Returns whether the exchange has an outcome.
Task<bool> HttpClient::State::attempt(Exchange& exchange, std::unique_ptr<ClientConnection> connection, bool reused) {
  exchange.sent = true;
  connection->begin(exchange.head, exchange.request.body, exchange.request.method == "HEAD");
  auto waiting = connection->done().wait();
  co_await waiting;
  if (connection->complete()) {
    exchange.outcome = connection->take_response();
    keep(exchange.key, std::move(connection));
    co_return true;
  }
  if (reused && !connection->answered() && is_idempotent(exchange.request.method)) co_return false;
  if (const char* const violation = connection->violation()) {
    exchange.outcome =
        fail(connection->too_long() ? ErrorCode::limit_exceeded : ErrorCode::protocol_error,
             "the response of " + exchange.address + " can't be used: " + violation, ErrorScope::call, Initiator::peer);
  } else {
    exchange.outcome = fail(is_safe(exchange.request.method) ? ErrorCode::unavailable : ErrorCode::outcome_unknown,
                            exchange.address + " ended the connection before the response: " + connection->end_reason(),
                            ErrorScope::connection, Initiator::peer);
  }
  co_return true;
}

Task<void> HttpClient::State::perform(Exchange& exchange) {
  try {
    auto running = run(exchange);
    co_await std::move(running);
  } catch (const std::exception& thrown) {
    exchange.outcome = fail(ErrorCode::internal, thrown.what());
  }
  exchange.done.set();
}

Task<void> HttpClient::State::run(Exchange& exchange) {
  struct Use {
    explicit Use(State& of, const std::string& key)
        : state(of), host(of.hosts.try_emplace(key, of.options.connections_per_host_max).first) {
      ++host->second.users;
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (--host->second.users == 0) state.hosts.erase(host);
    }
    State& state;
    const std::map<std::string, Host>::iterator host;
  };
  const Use use(*this, exchange.key);
  auto acquiring = use.host->second.permits.acquire();
  const auto permit = co_await acquiring;
  if (std::unique_ptr<ClientConnection> connection = take_idle(exchange.key)) {
    auto attempting = attempt(exchange, std::move(connection), true);
    if (co_await std::move(attempting)) co_return;
  }
  exchange.sent = false;
  const Time deadline = loop.after(std::min(options.connect_timeout, exchange.timeout));
  auto opening = network->connect(loop, exchange.address, deadline - loop.now());
  Result<std::unique_ptr<transport::Stream>> stream = co_await std::move(opening);
  if (stream && exchange.url.secure) {
    auto protecting = options.security->protect(loop, std::move(*stream), exchange.url.address, "http/1.1", deadline);
    stream = co_await std::move(protecting);
  }
  if (!stream) {
    exchange.outcome = std::unexpected(std::move(stream.error()));
    co_return;
  }
  auto attempting = attempt(exchange, std::make_unique<ClientConnection>(loop, std::move(*stream), limits), false);
  co_await std::move(attempting);
}

Task<Result<HttpClientResponse>> HttpClient::State::send(std::shared_ptr<State> state, HttpClientRequest request) {
  if (Loop::current() != nullptr && Loop::current() != &state->loop) {
    co_return fail(ErrorCode::invalid_argument, "this HttpClient belongs to another loop than the one that runs here");
  }
  if (const Result<void> valid = check(request); !valid) co_return std::unexpected(valid.error());
  const Result<Url> url = http1::parse_url(request.url);
  if (!url) co_return std::unexpected(url.error());
  const std::string head = head_of(request, *url);
  const std::string address = request.address.empty() ? url->address : request.address;
  if (url->secure && state->options.security == nullptr) {
    co_return fail(ErrorCode::invalid_argument,
                   "https needs the option `security`: set it to a TlsClient (hawser/tls.h)");
  }
  const std::string key = (url->secure ? "https://" + url->address + " at " : std::string()) + address;
  const Duration timeout = request.timeout.value_or(state->options.request_timeout);
  Exchange exchange{.request = request, .url = *url, .address = address, .key = key, .head = head, .timeout = timeout};
  std::stop_source time_is_up;
  const detail::StopTimer timer(state->loop, timeout, time_is_up);
  const AnyStop stop(request.token, time_is_up.get_token());
  Scope work;
  work.spawn(state->perform(exchange));
  auto waiting = exchange.done.wait(stop.token());
  const Result<void> ended = co_await std::move(waiting);
  if (ended || exchange.done.is_set()) co_return std::move(exchange.outcome);
  const std::string sent = exchange.sent ? "; it may have been executed" : "; it was not sent";
  if (timer.expired()) {
    co_return fail(ErrorCode::deadline_exceeded, "no complete response of " + address + " within the timeout" + sent);
  }
  co_return fail(ErrorCode::cancelled, "the request to " + address + " was cancelled" + sent);
}

HttpClient::HttpClient(Loop& loop, HttpClientOptions options) : state_(std::make_shared<State>(loop, options)) {}

HttpClient::~HttpClient() {
  state_->closed = true;
  state_->sweep_timer.stop();
  state_->idle.clear();
}

Task<Result<HttpClientResponse>> HttpClient::send(HttpClientRequest request) {
  return State::send(state_, std::move(request));
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

std::size_t HttpClient::idle_connections() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(state_->idle, [](const State::Idle& one) { return one.connection->reusable(); }));
}

}  // namespace hawser
