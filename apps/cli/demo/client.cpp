#include "hawser/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cli/call/outcome.h"
#include "cli/demo/echo.hawser.h"
#include "cli/demo/protocols.h"
#include "cli/demo/shop.hawser.h"
#include "hawser/http_client.h"
#include "protocol/http/json/value_types.h"

namespace hawser::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Answer = Result<std::string>;

// One line of the table.
struct Shown {
  std::string_view protocol;
  std::string_view kind;
  std::string_view method;
  std::string time;
  std::string answer;
};

demo::Item item_of(std::string name) {
  demo::Item item;
  item.set_name(std::move(name));
  item.set_count(1);
  return item;
}

// Returns `text`, or an error if the answer is not right.
Answer expected(bool right, std::string text) {
  if (right) return text;
  return fail(ErrorCode::protocol_error, "the answer is wrong: " + text);
}

Task<Answer> echo(Client& client) {
  const example::EchoService::Stub stub(client);
  example::EchoRequest request;
  request.set_message("hello");
  CO_TRY(const auto& reply, co_await stub.Echo(request));
  co_return expected(reply.message() == "hello", reply.message());
}

Task<Answer> order(Client& client) {
  const demo::ShopService::Stub stub(client);
  demo::OrderRequest request;
  request.set_item("rope");
  request.set_count(2);
  CO_TRY(const auto& reply, co_await stub.Order(request));
  co_return expected(reply.text() == "2 x rope", reply.text());
}

// A call with streams has no deadline unless it is given one.
Task<Answer> buy(Client& client, CallOptions options) {
  const demo::ShopService::Stub stub(client);
  CO_TRY(auto&& call, co_await stub.Buy(options));
  auto items = call.writer();
  for (const char* name : {"rope", "anchor"}) {
    // The result says why the call ended early.
    if (const Result<void> written = co_await items.write(item_of(name)); !written) break;
  }
  CO_TRY(const auto& receipt, co_await call.finish());
  co_return expected(receipt.items() == 2, fmt::format("{} items", receipt.items()));
}

// Counts the events until their end.
template <class Events>
Task<Result<int>> count_of(Events events) {
  int count = 0;
  while (true) {
    CO_TRY(const auto& event, co_await events.next());
    if (!event) co_return count;
    ++count;
  }
}

Task<Answer> watch(Client& client, CallOptions options) {
  const demo::ShopService::Stub stub(client);
  demo::WatchRequest request;
  request.set_events(3);
  CO_TRY(auto&& call, co_await stub.Watch(options, request));
  const Result<int> count = co_await count_of(call.reader());
  CO_TRY(co_await call.finish());
  CO_TRY(count);
  co_return expected(*count == 3, fmt::format("{} events", *count));
}

Task<Answer> chat(Client& client, CallOptions options) {
  const demo::ShopService::Stub stub(client);
  CO_TRY(auto&& call, co_await stub.Chat(options));
  auto items = call.writer();
  auto events = call.reader();
  const Result<void> written = co_await items.write(item_of("rope"));
  std::string text;
  if (written) {
    const auto event = co_await events.next();
    if (event && *event) text = (*event)->text();
  }
  CO_TRY(co_await call.finish());
  co_return expected(text == "rope is in stock", text);
}

// JSON over HTTP/1.1, or a route if `body` is empty.
Task<Answer> request(HttpClient& client, std::string address, std::string path, std::string body) {
  HttpClientRequest request;
  request.url = "http://hawser" + path;
  request.address = std::move(address);
  if (!body.empty()) {
    request.method = "POST";
    request.body = std::move(body);
    request.content_type = "application/json";
  }
  CO_TRY(HttpClientResponse&& response, co_await client.send(std::move(request)));
  std::string text = std::move(response.body);
  while (text.ends_with('\n')) text.pop_back();
  if (response.status == 200) co_return text;
  co_return fail(response.status == 404 ? ErrorCode::unknown_method : ErrorCode::application,
                 fmt::format("HTTP status {}: {}", response.status, text));
}

// Makes the calls and collects the lines of the table.
class Showing {
 public:
  Showing(std::string address, Duration timeout) : address_(std::move(address)), timeout_(timeout) {}

  Task<int> run() {
    co_await calls("native", ClientOptions(), true);
    co_await calls("grpc", demo_grpc_options(), true);
    co_await calls("baidu_std", demo_baidu_std_options(), false);
    co_await http();
    print();
    co_return status_;
  }

 private:
  Task<void> calls(std::string_view protocol, std::optional<ClientOptions> options, bool streams) {
    if (!options) {
      lines_.push_back({protocol, "", "", "", "this build does not have the protocol"});
      co_return;
    }
    options->connect_timeout = options->call_timeout = timeout_;
    Client client(*Loop::current(), std::move(*options));
    const Result<void> connected = co_await client.connect(address_);
    if (!connected) co_return add(protocol, "connect", "", {}, fail(connected.error()));
    co_await timed(protocol, "unary", "example.EchoService/Echo", echo(client));
    co_await timed(protocol, "unary", "demo.ShopService/Order", order(client));
    if (!streams || !client.connected()) co_return;
    co_await timed(protocol, "client streams", "demo.ShopService/Buy", buy(client, {.timeout = timeout_}));
    co_await timed(protocol, "server streams", "demo.ShopService/Watch", watch(client, {.timeout = timeout_}));
    co_await timed(protocol, "both stream", "demo.ShopService/Chat", chat(client, {.timeout = timeout_}));
  }

  Task<void> http() {
    HttpClientOptions options;
    options.connect_timeout = options.request_timeout = timeout_;
    HttpClient client(*Loop::current(), options);
    const std::string_view echo_method = "example.EchoService/Echo";
    co_await timed("http", "JSON", echo_method,
                   request(client, address_, "/example.EchoService/Echo", "{\"message\":\"hello\"}"));
    co_await timed("http", "JSON", "demo.ShopService/Order",
                   request(client, address_, "/demo.ShopService/Order", "{\"item\":\"rope\",\"count\":2}"));
    co_await timed("http", "route", "GET /health", request(client, address_, "/health", ""));
  }

  Task<void> timed(std::string_view protocol, std::string_view kind, std::string_view method, Task<Answer> call) {
    const auto begin = Clock::now();
    const Answer answer = co_await std::move(call);
    add(protocol, kind, method, Clock::now() - begin, answer);
  }

  void add(std::string_view protocol, std::string_view kind, std::string_view method, Clock::duration time,
           const Answer& answer) {
    std::string text = answer ? *answer : fmt::format("{}: {}", to_string(answer.error().code), answer.error().text);
    if (!answer && status_ == succeeded) status_ = status_of(answer.error());
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
    std::string taken = answer ? fmt::format("{} us", us) : std::string();
    lines_.push_back({protocol, kind, method, std::move(taken), protocol::http::printable(text)});
  }

  void print() const {
    constexpr const char* form = "{:<9}  {:<14}  {:<24}  {:>10}  {}\n";
    fmt::print(fmt::runtime(form), "protocol", "kind", "method", "time", "answer");
    for (const Shown& line : lines_) {
      fmt::print(fmt::runtime(form), line.protocol, line.kind, line.method, line.time, line.answer);
    }
    std::fflush(stdout);
  }

  const std::string address_;
  const Duration timeout_;
  std::vector<Shown> lines_;
  int status_ = succeeded;
};

Task<int> show(std::string address, Duration timeout) {
  Showing showing(std::move(address), timeout);
  co_return co_await showing.run();
}

}  // namespace

int show_calls(const std::string& address, Duration timeout) { return sync_wait(show(address, timeout)); }

}  // namespace hawser::cli
