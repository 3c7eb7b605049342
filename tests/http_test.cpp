#include "hawser/http.h"

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hawser/change_option.h"
#include "hawser/hawser.h"
#include "hawser/interceptor.h"
#include "tests/http_server_fixture.h"
#include "tests/raw_peer.h"
#include "tests/repeat_handler.h"
#include "tests/skipped_calls.h"

// A server that serves HTTP/1.1 beside its own protocol. A native client calls it all the time.
namespace hawser {

namespace {

using namespace http_test;

struct Response {
  int status = 0;
  std::string head;
  std::string body;
  bool has(std::string_view text) const { return head.find(text) != std::string::npos; }
};

class HttpServer : public ServerFixture {
 protected:
  void start(HttpOptions http_options = {}) {
    make_server();
    server->add_method({.id = 3, .name = "test.Bytes/Undescribed", .handler = std::make_unique<Repeat>()});
    server->enable(add_routes(http(http_options))
                       .route("GET", "/files/*", hello)
                       .route("DELETE", "/v1/users/{id}", parameters)
                       .route("GET", "/v1/users/{id}/orders/{order}", parameters)
                       .route("GET", "/v1/{kind}/7", parameters)
                       .route("GET", "/v1/users/me", hello)
                       .route("GET", "/v1/*", hello));
    start_server();
  }
  RawSocket connected(std::string_view bytes = {}) {
    RawSocket socket = RawSocket::connected_to(server->address());
    if (!bytes.empty()) socket.send(as_bytes(bytes));
    return socket;
  }
  static Response receive(RawSocket& socket, bool has_body = true) {
    Response response;
    response.head = socket.receive_text("\r\n\r\n");
    if (response.head.size() < 12) return response;
    response.status = std::stoi(response.head.substr(9, 3));
    const std::size_t at = response.head.find("Content-Length: ");
    if (at == std::string::npos || !has_body) return response;
    const auto body = socket.receive(std::stoul(response.head.substr(at + 16)));
    if (body) response.body = as_text(*body);
    return response;
  }
  Response ask(std::string_view request) {
    RawSocket socket = connected(request);
    return receive(socket);
  }
  static std::string post(std::string_view path, std::string_view body, std::string_view fields = "") {
    return "POST " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n" + std::string(fields) +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
  }
  static std::string get(std::string_view path, std::string_view fields = "") {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n" + std::string(fields) + "\r\n";
  }

  // Clients that end their direction at once, as `printf ... | nc -N` does, receive all replies.
  void expect_replies_after_end() {
    HttpOptions http_options;
    http_options.half_closed_timeout = patience;
    start(http_options);
    const auto count = [](std::string_view text, std::string_view part) {
      std::size_t found = 0;
      for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; ++at) ++found;
      return found;
    };
    const std::string slow = post("/test.Text/Later", "\"a\"");
    for (const std::string& requests :
         {slow, get("/health"), get("/large"), std::string("GET /large HTTP/1.0\r\n\r\n"),
          get("/hello") + get("/health") + slow + get("/large") + slow, get("/large") + get("/large") + "GET /part"}) {
      RawSocket socket = connected(requests);
      ::shutdown(socket.fd(), SHUT_WR);
      const std::string replies = socket.receive_all();
      EXPECT_EQ(count(replies, "HTTP/1.1 200 OK\r\n"), count(requests, " HTTP/1.")) << requests;
      EXPECT_GE(replies.size(), count(requests, "/large") << 20) << requests;
    }
    RawSocket streamed = connected(get("/streamed"));
    ::shutdown(streamed.fd(), SHUT_WR);
    EXPECT_TRUE(streamed.receive_all().ends_with("\r\n0\r\n\r\n"));
    EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
  }
  static std::string line_with_token(std::string_view method, std::string_view path) {
    return std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer good\r\n\r\n";
  }
};

TEST_F(HttpServer, CallsMethodsWithJson) {
  start();
  const Response now = ask(post("/test.Text/Say", "\"hi\"", "Content-Type: application/json; charset=utf-8\r\n"));
  EXPECT_EQ(now.status, 200);
  EXPECT_EQ(now.body, "\"hi\"");
  EXPECT_TRUE(now.has("\r\nContent-Type: application/json\r\n")) << now.head;
  EXPECT_TRUE(now.has("\r\nDate: ")) << now.head;
  const Response later = ask(post("/test.Text/Later", "\"you\"", "X-One: two\r\nCookie: c\r\n"));
  EXPECT_EQ(later.body, "\"you\"");
  EXPECT_TRUE(later.has("x-back-x-one: two\r\n")) << later.head;
  EXPECT_FALSE(later.has("cookie")) << later.head;
  // Results that are sent as pieces in the library's own protocol.
  const std::string text = text_of(100'000);
  EXPECT_EQ(ask(post("/test.Text/Later", "\"" + text + "\"")).body, "\"" + text + "\"");
  EXPECT_EQ(ask(post("/test.Text/Say", "\"" + text + "\"")).body, "\"" + text + "\"");
}

TEST_F(HttpServer, CallsMethodsWithBytes) {
  start();
  for (const std::string_view type : {"application/proto", "application/x-protobuf", "application/octet-stream"}) {
    const Response response =
        ask(post("/test.Bytes/Repeat", "\x08\x01", "Content-Type: " + std::string(type) + "\r\n"));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "\x08\x01");
    EXPECT_TRUE(response.has("Content-Type: application/proto\r\n"));
  }
  const std::string text = text_of(1 << 20);
  EXPECT_EQ(ask(post("/test.Bytes/Repeat", text, "Content-Type: application/proto\r\n")).body, text);
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
}

TEST_F(HttpServer, MapsErrorsToStatusAndJson) {
  start();
  const Response failed = ask(post("/test.Text/Later", "\"fail\""));
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(failed.body, "{\"code\":\"application\",\"application_code\":7,\"message\":\"it \\\"failed\\\"\\n\"}\n");
  EXPECT_EQ(ask(post("/test.Text/Later", "\"throw\"")).status, 500);
  EXPECT_EQ(ask(post("/test.Text/Say", "17")).status, 400);
  EXPECT_EQ(ask(post("/test.Text/Say", "\"no json\"")).status, 500);
  const Response unknown = ask(post("/test.Text/Nothing", "\"\""));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.body, "{\"code\":\"unknown_method\",\"message\":\"nothing is served at this path\"}\n");
  EXPECT_EQ(ask(post("/test.Bytes/Undescribed", "\"\"")).status, 404);
  const Response got = ask(get("/test.Text/Say"));
  EXPECT_EQ(got.status, 405);
  EXPECT_TRUE(got.has("Allow: POST\r\n"));
  EXPECT_EQ(ask(post("/test.Text/Say", "x", "Content-Type: text/html\r\n")).status, 415);
  EXPECT_EQ(ask(post("/test.Text/Say", "x", "Content-Type: application/proto\r\n")).status, 415);
  EXPECT_EQ(ask(post("/test.Bytes/Stream", "x")).status, 501);
}

TEST_F(HttpServer, ServesRoutes) {
  start();
  const Response response = ask(get("/hello?a=b", "X-Name: me\r\n"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "GET /hello?a=b me ");
  EXPECT_TRUE(response.has("X-Good: yes\r\n"));
  EXPECT_FALSE(response.has("Injected"));
  EXPECT_FALSE(response.has("Content-Length: 1\r\n"));
  EXPECT_EQ(ask(post("/hello", "body")).body, "POST /hello? nobody body");
  EXPECT_EQ(ask(get("/files/a/b")).body, "GET /files/a/b? nobody ");
  EXPECT_EQ(ask(get("/files")).status, 404);
  EXPECT_EQ(ask(get("/broken")).status, 500);
  EXPECT_EQ(ask(get("/large")).body.size(), std::size_t{1} << 20);
  const Response other = ask("DELETE /hello HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(other.status, 405);
  EXPECT_TRUE(other.has("Allow: GET, HEAD, POST\r\n"));
  const Response none = ask(get("/empty"));
  EXPECT_EQ(none.status, 204);
  EXPECT_FALSE(none.has("Content-"));
  RawSocket socket = connected("HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n" + get("/health"));
  const Response head = receive(socket, false);
  EXPECT_TRUE(head.has("Content-Length: 20\r\n")) << head.head;
  EXPECT_EQ(receive(socket).body, "OK\n");
}

TEST_F(HttpServer, InterceptorsSurroundMethodsAndRoutes) {
  server = std::make_unique<Server>(options);
  server->use([](IncomingCall& call, Next next) -> Task<Result<void>> {
    if (call.protocol() == "hawser") co_return co_await next();
    if (!call.metadata().find("authorization")) co_return fail(ErrorCode::unauthenticated, "who are you?");
    if (call.metadata().find("authorization") != "Bearer good") co_return fail(ErrorCode::permission_denied, "no");
    call.add_reply_metadata("x-method", std::string(call.method()) + " over " + std::string(call.protocol()));
    co_return co_await next();
  });
  start();
  for (const std::string& request : {get("/hello"), post("/test.Text/Later", "\"a\"")}) {
    const std::string rest = request.substr(request.find("Host"));
    const std::string line = request.substr(0, request.size() - rest.size());
    const Response unknown = ask(request);
    EXPECT_EQ(unknown.status, 401);
    EXPECT_EQ(unknown.body, "{\"code\":\"unauthenticated\",\"message\":\"who are you?\"}\n");
    EXPECT_EQ(ask(line + "Authorization: Bearer bad\r\n" + rest).status, 403);
    const Response good = ask(line + "Authorization: Bearer good\r\n" + rest);
    EXPECT_EQ(good.status, 200);
    EXPECT_TRUE(
        good.has(line.starts_with("GET") ? "x-method: GET /hello over http" : "x-method: test.Text/Later over http"))
        << good.head;
  }
  EXPECT_EQ(ask(line_with_token("GET", "/broken")).status, 500);
  EXPECT_EQ(ask(get("/health")).status, 200);  // No call.
}

TEST_F(HttpServer, InterceptorsThatSkipMethodsAndRoutesSeeTheirEnds) {
  const SkipsAll skips;
  server = std::make_unique<Server>(options);
  server->use(skips);
  start();
  EXPECT_EQ(ask(post("/test.Text/Say", "\"a\"")).status, 200);  // Answered at once.
  EXPECT_EQ(ask(get("/empty")).status, 204);
  EXPECT_EQ(skips.take("http").size(), 0U);
  EXPECT_EQ(ask(post("/test.Text/Later", "\"abc\"")).status, 200);
  EXPECT_EQ(ask(post("/test.Text/Later", "\"fail\"")).status, 500);
  EXPECT_EQ(ask(get("/hello")).status, 200);
  EXPECT_EQ(ask(get("/broken")).status, 500);
  const std::vector<std::string> lines = skips.take("http");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "http test.Text/Later: result of 7");  // A length and the text.
  EXPECT_EQ(lines[1], "http test.Text/Later: it \"failed\"\n");
  EXPECT_EQ(lines[2], "http GET /hello: result of 19");
  EXPECT_TRUE(lines[3].starts_with("http GET /broken: the handler threw an exception")) << lines[3];
}

TEST_F(HttpServer, StreamsBodies) {
  start();
  RawSocket socket = connected(get("/streamed"));
  const Response head = receive(socket);
  EXPECT_TRUE(head.has("Transfer-Encoding: chunked\r\n")) << head.head;
  EXPECT_FALSE(head.has("Content-Length"));
  std::string body;
  for (;;) {
    const std::string line = socket.receive_text("\r\n");
    const std::size_t size = std::stoul("0" + line, nullptr, 16);
    const auto part = socket.receive(size + 2);
    if (size == 0 || !part) break;
    body += as_text(*part).substr(0, size);
  }
  EXPECT_EQ(body.size(), 1'000'000U);
  EXPECT_EQ(body.substr(999, 2), "ab");
  // The connection goes on.
  socket.send(as_bytes("HEAD /streamed HTTP/1.1\r\nHost: a\r\n\r\n" + get("/health")));
  EXPECT_TRUE(receive(socket).has("Transfer-Encoding: chunked\r\n"));
  EXPECT_EQ(receive(socket).body, "OK\n");
  const std::string old = connected("GET /streamed HTTP/1.0\r\n\r\n").receive_all();
  EXPECT_EQ(old.size() - old.find("\r\n\r\n") - 4, 1'000'000U);
}

TEST_F(HttpServer, EndlessStreamsAreBoundedAndEndWithTheirClient) {
  options.send_backlog_bytes_max = 100'000;
  start();
  RawSocket reads = connected(get("/endless"));
  RawSocket never_reads = connected(get("/endless"));
  EXPECT_TRUE(reads.receive(3'000'000));
  EXPECT_TRUE(native->sees_calls(20));
  reads.close();
  never_reads.close();
  EXPECT_TRUE(soon([&] { return cancelled == 2 && server->counters().connections_open == 1; }));
}

TEST_F(HttpServer, RoutesThatCannotBe) {
  Http routes;
  routes.route("GET", "/a", hello);
  EXPECT_THROW(routes.route("GET", "/a", hello), std::logic_error);
  EXPECT_THROW(routes.route("GET", "a", hello), std::logic_error);
  routes.route("GET", "/v1/{id}", hello);
  for (const char* path :
       {"/v1/{id}", "/v1/{name}", "/{}", "/a{id}", "/{id}b", "/{a}/{a}", "/{a", "/a}", "/{a}/*", "/{a{b}}"}) {
    EXPECT_THROW(routes.route("GET", path, hello), std::logic_error) << path;
  }
  routes.route("POST", "/v1/{id}", hello);
}

TEST_F(HttpServer, ParametersOfPaths) {
  start();
  EXPECT_EQ(ask(get("/v1/users/42?x=1")).body, "id=42;");
  EXPECT_EQ(ask(get("/v1/users/4%202")).body, "id=4%202;") << "not decoded";
  EXPECT_EQ(ask("DELETE /v1/users/42 HTTP/1.1\r\nHost: a\r\n\r\n").body, "id=42;");
  EXPECT_EQ(ask(get("/v1/users/42/orders/7")).body, "id=42;order=7;");
  EXPECT_EQ(ask(get("/v1/things/7")).body, "kind=things;");
  EXPECT_EQ(ask(get("/v1/users/7")).body, "id=7;") << "the fixed segment comes first";
  // A path without parameters goes first, and "/*" serves what is left.
  EXPECT_TRUE(ask(get("/v1/users/me")).body.starts_with("GET /v1/users/me?"));
  EXPECT_TRUE(ask(get("/v1/users/")).body.starts_with("GET /v1/users/?"));
  EXPECT_TRUE(ask(get("/v1/users/42/orders")).body.starts_with("GET /v1/users/42/orders?"));
  const Response refused = ask("PUT /v1/users/42 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(refused.status, 405);
  EXPECT_NE(refused.head.find("Allow: DELETE, GET"), std::string::npos) << refused.head;
}

TEST_F(HttpServer, PathsThatAHandlerCouldReadDifferentlyAreRefused) {
  HttpOptions http_options;
  for (const bool encoded_slashes : {false, true}) {
    native.reset();
    server.reset();
    http_options.encoded_slashes = encoded_slashes;
    start(http_options);
    for (const char* path :
         {"/files/..", "/files/../hello", "/files/.", "/./hello", "/files/.%2e/hello", "/files/%2e%2E/hello", "/%2e",
          "/files//hello", "//hello", "/hello//", "/files/a%2F..%2fb", "/files/..%5cb", "/files/%2Fetc",
          "/files/a%2F/b", "/files/a%00", "/files/%", "/files/%4", "/files/%zz", "/files/%g0"}) {
      const Response refused = ask(get(path));
      EXPECT_EQ(refused.status, 400) << path;
      EXPECT_NE(refused.body.find("the path has a"), std::string::npos) << refused.body;
    }
    // Not only for routes.
    EXPECT_EQ(ask(post("//test.Text/Say", "\"a\"")).status, 400);
    for (const char* path :
         {"/files/a..b", "/files/...", "/files/.a", "/files/a/", "/files/%41%2e%7e", "/files/%252e%252e"}) {
      const Response served = ask(get(path));
      EXPECT_EQ(served.status, 200) << path;
      EXPECT_NE(served.body.find(path), std::string::npos) << "not decoded";
    }
    EXPECT_EQ(ask(get("/v1/users/a%2Fb")).status, encoded_slashes ? 200 : 400);
    EXPECT_EQ(ask(get("/v1/users/a%5Cb")).status, encoded_slashes ? 200 : 400);
  }
}

TEST_F(HttpServer, KeepsConnectionsAndAnswersPipelinedRequestsInOrder) {
  start();
  std::string requests;
  for (int i = 0; i < 300; ++i) {
    const std::string text = "\"" + std::to_string(i) + "\"";
    requests += post(i % 3 == 0 ? "/test.Text/Later" : "/test.Text/Say", text);
  }
  RawSocket socket = connected();
  std::thread sender([&] { socket.send(as_bytes(requests)); });
  for (int i = 0; i < 300; ++i) EXPECT_EQ(receive(socket).body, "\"" + std::to_string(i) + "\"");
  sender.join();
  socket.send(as_bytes(get("/health", "Connection: close\r\n")));
  EXPECT_TRUE(receive(socket).has("Connection: close\r\n"));
  EXPECT_TRUE(socket.closed_by_peer());
  EXPECT_EQ(connected("GET /health HTTP/1.0\r\n\r\n").receive_all().substr(0, 15), "HTTP/1.1 200 OK");
  RawSocket old = connected("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_TRUE(receive(old).has("Connection: keep-alive\r\n"));
  old.send(as_bytes("GET /health HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(receive(old).body, "OK\n");
}

TEST_F(HttpServer, BodiesArriveInAnyPieces) {
  start();
  const std::string chunks =
      "POST /test.Bytes/Repeat HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
  for (const std::string& request : {chunks, post("/test.Bytes/Repeat", "abcde")}) {
    for (std::size_t cut = 0; cut < request.size(); cut += 3) {
      RawSocket socket = connected(request.substr(0, cut));
      std::this_thread::sleep_for(1ms);
      socket.send(as_bytes(request.substr(cut)));
      EXPECT_EQ(receive(socket).body, "abcde") << cut;
    }
  }
}

TEST_F(HttpServer, ContinuesOnExpectation) {
  start();
  RawSocket socket =
      connected("POST /test.Bytes/Repeat HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(socket.receive_text("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  socket.send(as_bytes("abc"));
  EXPECT_EQ(receive(socket).body, "abc");
  // A refused request is answered before its body.
  RawSocket refused =
      connected("POST /nothing HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(receive(refused).status, 404);
  EXPECT_TRUE(refused.closed_by_peer());
}

TEST_F(HttpServer, RefusedRequestsKeepTheConnectionIfTheirBodyIsShort) {
  start();
  RawSocket socket = connected(post("/nothing", text_of(20'000)) + get("/health"));
  EXPECT_EQ(receive(socket).status, 404);
  EXPECT_EQ(receive(socket).body, "OK\n");
  RawSocket large = connected(post("/nothing", text_of(200'000)));
  const Response response = receive(large);
  EXPECT_EQ(response.status, 404);
  EXPECT_TRUE(response.has("Connection: close\r\n"));
  EXPECT_TRUE(large.closed_by_peer());
}

TEST_F(HttpServer, MalformedRequestsAreAnsweredAndClosed) {
  start();
  for (const auto& [request, status] : std::vector<std::pair<std::string, int>>{
           {"GET / HTTP/1.1\nHost: a\n\n", 400},
           {post("/hello", "x", "Content-Length: 2\r\n"), 400},
           {post("/hello", "x", "Transfer-Encoding: chunked\r\n"), 400},
           {get("/" + std::string(10'000, 'x')), 414},
           {get("/", "X: " + std::string(10'000, 'x') + "\r\n"), 431},
           {"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n", 413},
           {"GET / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n", 417},
           {"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505}}) {
    RawSocket socket = connected(request);
    EXPECT_EQ(receive(socket).status, status) << request.substr(0, 60);
    EXPECT_TRUE(socket.closed_by_peer());
  }
  EXPECT_EQ(server->counters().protocol_errors, 8U);
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
}

TEST_F(HttpServer, DeadlinesStopHandlers) {
  start();
  const Response method = ask(post("/test.Text/Wait", "\"\"", "timeout-ms: 20\r\n"));
  EXPECT_EQ(method.status, 504);
  EXPECT_NE(method.body.find("deadline_exceeded"), std::string::npos);
  EXPECT_EQ(ask(post("/test.Text/Wait", "\"\"", "grpc-timeout: 20m\r\n")).status, 504);
  EXPECT_EQ(ask(get("/wait", "timeout-ms: 20\r\n")).status, 504);
  EXPECT_EQ(cancelled, 3);
  EXPECT_EQ(ask(post("/test.Text/Say", "\"a\"", "timeout-ms: 0\r\n")).status, 504) << "no handler runs";
  EXPECT_EQ(ask(get("/hello", "timeout-ms: 0\r\n")).status, 504);
}

TEST_F(HttpServer, AClientThatEndsItsDirectionGetsItsReplies) { expect_replies_after_end(); }

TEST_F(HttpServer, AClientThatEndsItsDirectionGetsItsRepliesFromARing) {
  options.loop.poller = PollerKind::io_uring;
  expect_replies_after_end();
}

TEST_F(HttpServer, AResetAfterTheEndOfTheClientsDirectionCancelsItsCall) {
  for (const PollerKind poller : {PollerKind::epoll, PollerKind::io_uring}) {
    waiting = cancelled = 0;
    native.reset();
    server.reset();
    options.loop.poller = poller;
    HttpOptions http_options;
    http_options.half_closed_timeout = 1h;
    start(http_options);
    RawSocket held = connected(get("/wait"));
    RawSocket streaming = connected(get("/endless"));
    ::shutdown(held.fd(), SHUT_WR);
    ::shutdown(streaming.fd(), SHUT_WR);
    EXPECT_TRUE(soon([&] { return waiting == 1; }));
    EXPECT_TRUE(streaming.receive(100'000));
    EXPECT_EQ(cancelled, 0);
    held.reset();
    streaming.close();
    EXPECT_TRUE(soon([&] { return cancelled == 2 && server->counters().connections_open == 1; }));
  }
}

TEST_F(HttpServer, AClientThatGoesAwayCancelsItsCall) {
  HttpOptions http_options;
  http_options.half_closed_timeout = 20ms;
  start(http_options);
  RawSocket first = connected(post("/test.Text/Wait", "\"\""));
  RawSocket second = connected(get("/wait"));
  EXPECT_TRUE(soon([&] { return waiting == 2; }));
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 2; }));
  first.close();
  second.reset();
  EXPECT_TRUE(soon([&] { return cancelled == 2 && server->counters().connections_open == 1; }));
}

TEST_F(HttpServer, StopsGracefully) {
  start();
  RawSocket idle = connected(get("/health"));
  EXPECT_EQ(receive(idle).status, 200);
  RawSocket busy = connected(get("/held"));
  EXPECT_TRUE(soon([&] { return waiting == 1; }));
  native.reset();
  std::thread stopper([&] { server->stop(patience); });
  EXPECT_TRUE(idle.closed_by_peer());
  // The stop has begun, and waits for the call that is in progress.
  released = true;
  const Response response = receive(busy);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "released");
  EXPECT_TRUE(response.has("Connection: close\r\n"));
  EXPECT_TRUE(busy.closed_by_peer());
  busy.close();
  idle.close();
  stopper.join();
}

TEST_F(HttpServer, LimitsOfTheServerHold) {
  options.connections_max = 2;
  start();
  EXPECT_TRUE(native->sees_calls(1));
  RawSocket first = connected(get("/wait"));
  EXPECT_TRUE(soon([&] { return waiting == 1; }));
  RawSocket refused = connected(get("/health"));
  const Response response = receive(refused);
  EXPECT_EQ(response.status, 503);
  EXPECT_NE(response.body.find("connections_max"), std::string::npos);
  EXPECT_TRUE(refused.closed_by_peer());
}

// ---- Hostile clients ----

TEST_F(HttpServer, SlowHeadersEndAtTheHeaderTimeout) {
  HttpOptions http_options;
  http_options.header_timeout = 50ms;
  start(http_options);
  RawSocket slow = connected("GET /health HTTP/1.1\r\n");
  // Bytes that keep coming do not extend the time.
  char answer = 0;
  while (::recv(slow.fd(), &answer, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && slow.send(as_bytes("X: y\r\n"))) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(receive(slow).status, 408);
}

TEST_F(HttpServer, IdleConnectionsEndAtTheIdleTimeout) {
  HttpOptions http_options;
  http_options.idle_timeout = 50ms;
  http_options.header_timeout = 1h;
  start(http_options);
  RawSocket idle = connected(get("/health"));
  EXPECT_EQ(receive(idle).status, 200);
  EXPECT_TRUE(idle.closed_by_peer());
}

TEST_F(HttpServer, AClientThatStillReadsRepliesIsNotIdle) {
  options.send_backlog_bytes_max = 1 << 20;
  HttpOptions http_options;
  http_options.idle_timeout = 10ms;
  start(http_options);
  constexpr int count = 40;  // More than the kernel's buffers hold.
  std::string requests;
  for (int i = 0; i < count; ++i) requests += get("/large");
  RawSocket slow = connected(requests);
  std::this_thread::sleep_for(100ms);
  for (int i = 0; i < count; ++i) EXPECT_EQ(receive(slow).body.size(), std::size_t{1} << 20) << i;
  EXPECT_TRUE(slow.closed_by_peer());
}

TEST_F(HttpServer, SlowBodiesEndAtTheLeastRate) {
  options.receive_window = 50ms;
  start();
  RawSocket slow = connected("POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc");
  EXPECT_TRUE(slow.closed_by_peer());
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
}

TEST_F(HttpServer, ReadersThatDoNotReadAreNotServedFurther) {
  options.send_backlog_bytes_max = 1 << 20;
  start();
  RawSocket greedy = connected();
  std::string requests;
  for (int i = 0; i < 2000; ++i) requests += get("/large");
  greedy.send_some(as_bytes(requests));
  EXPECT_TRUE(native->sees_calls(20));
  EXPECT_EQ(native->complaint(), "");
  native->stop();
  const std::uint64_t own = native->calls();
  // A peer that takes or sends nothing for two ping intervals ends: the native client might, on a busy machine.
  EXPECT_OK(change_option(*server, &ServerOptions::ping_interval, 50ms));
  without_native();
  EXPECT_LT(server->counters().calls, own + 200) << "two gigabytes were asked for";
}

// A client that reads nothing keeps neither a streamed response with its handler nor a whole response.
TEST_F(HttpServer, ReadersThatTakeNothingAreCutOff) {
  options.ping_interval = 1h;
  options.send_backlog_bytes_max = 1 << 20;
  HttpOptions http_options;
  http_options.write_timeout = 50ms;
  start(http_options);
  RawSocket streamed = connected(get("/endless"));
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += get("/large");
  RawSocket whole = connected(requests);
  EXPECT_TRUE(soon([&] { return cancelled == 1 && server->counters().connections_open == 1; }));
  EXPECT_EQ(ask(get("/hello")).status, 200);
}

TEST_F(HttpServer, BodiesShareTheMemoryOfTheServer) {
  options.receive_bytes_max = 2 << 20;
  options.receive_share_bytes_max = 1 << 20;
  options.receive_peer_bytes_max = 1 << 20;
  start();
  std::vector<RawSocket> senders;
  for (int i = 0; i < 40; ++i) {
    senders.push_back(connected("POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"));
    senders.back().send_some(as_bytes(text_of(200'000)));
  }
  EXPECT_TRUE(native->sees_calls(20));
  EXPECT_LE(server->counters().receive_bytes, std::uint64_t{4} << 20);
  EXPECT_TRUE(soon([&] { return server->counters().memory_refusals > 0; }));
  senders.clear();
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
}

TEST_F(HttpServer, ManyPipelinedRequestsWaitForASlowOne) {
  start();
  RawSocket eager = connected(get("/wait"));
  EXPECT_TRUE(soon([&] { return waiting == 1; }));
  const std::string request = get("/health");
  std::string requests;
  while (requests.size() < 64U << 20) requests += request;
  const std::size_t sent = eager.send_some(as_bytes(requests));
  EXPECT_LT(sent, requests.size());
  EXPECT_TRUE(native->sees_calls(20));
  EXPECT_LE(server->counters().receive_bytes, 1U << 20);
}

}  // namespace
}  // namespace hawser
