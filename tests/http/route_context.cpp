#include <gmock/gmock.h>

#include <thread>

#include "hawser/authorization.h"
#include "hawser/interceptor.h"
#include "hawser/trace.h"
#include "tests/http_server_fixture.h"

// Handlers of routes see the changes of interceptors, and all values of fields that come several times.
namespace hawser::http_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

std::string shown(const HttpRequest& request, std::string_view name) {
  std::string text = std::string(name) + "=" + std::string(request.header(name).value_or("(none)")) + "[";
  for (const std::string_view one : request.header_values(name)) text += std::string(one) + "|";
  return text + "] metadata " + std::string(request.metadata().find(name).value_or("(none)")) + "\n";
}

std::string shown(const HttpRequest& request) {
  std::string text = "identity=" + request.identity().text() + "\n";
  for (const char* const name : {"x-added", "x-removed", "authorization", "x-forwarded-for", "tracestate", "cookie",
                                 "accept", "content-type", "x-kept"}) {
    text += shown(request, name);
  }
  const std::optional<TraceContext> trace = trace_of(request.metadata());
  return text + "trace=" + (trace ? trace->trace_id_text() + "/" + trace->span_id_text() + "/" + trace->state : "none");
}

// Shows what the handler sees, and what the response's stream sees after the interceptors have ended.
Task<HttpResponse> show(HttpRequest& request) {
  HttpResponse response;
  response.body = shown(request);
  co_return response;
}
Task<HttpResponse> show_in_stream(HttpRequest& request) {
  HttpResponse response;
  response.stream = [&request](HttpBodyWriter& writer) -> Task<void> {
    static_cast<void>(co_await writer.write(shown(request)));
  };
  co_return response;
}

Task<Result<void>> change(IncomingCall& call, Next next) {
  static_cast<void>(call.set_metadata("x-added", "by the interceptor"));
  call.remove_metadata("x-removed");
  // As a tracer does: the span of the server.
  if (const auto trace = trace_of(call.metadata())) {
    static_cast<void>(call.set_metadata("traceparent", trace->child().traceparent()));
  }
  co_return co_await next();
}

class RouteContext : public ServerFixture {
 protected:
  void start(bool intercepted) {
    server = std::make_unique<Server>(options);
    if (intercepted) {
      Identity alice;
      alice.subject = "alice";
      server->use(BearerTokens({.required = false}).add("0123456789abcdef", alice));
      server->use(change);
    }
    make_server();
    server->enable(add_routes(http().route("GET", "/show", show).route("GET", "/stream", show_in_stream)));
    start_server();
  }
  std::string ask(std::string_view path, std::string_view fields) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes("GET " + std::string(path) + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" +
                         std::string(fields) + "\r\n"));
    return socket.receive_all();
  }
};

TEST_F(RouteContext, HandlersSeeWhatInterceptorsHaveChanged) {
  start(true);
  const std::string fields =
      "Authorization: Bearer 0123456789abcdef\r\nX-Removed: secret\r\nX-Added: forged\r\nx-added: twice\r\n"
      "X-Kept: 1\r\ntraceparent: " +
      std::string(parent) + "\r\ntracestate: a=1\r\nCookie: c=1\r\ntracestate: b=2\r\n";
  for (const std::string path : {"/show", "/stream"}) {
    const std::string answer = ask(path, fields);
    EXPECT_THAT(answer, HasSubstr("identity=token alice\n")) << path;
    EXPECT_THAT(answer, HasSubstr("x-added=by the interceptor[by the interceptor|] metadata by the interceptor\n"));
    EXPECT_THAT(answer, HasSubstr("x-removed=(none)[] metadata (none)\n"));
    EXPECT_THAT(answer, HasSubstr("authorization=(none)[] metadata (none)\n"));
    EXPECT_THAT(answer, HasSubstr("x-kept=1[1|] metadata 1\n"));
    EXPECT_THAT(answer, HasSubstr("cookie=c=1[c=1|] metadata (none)\n"));
    EXPECT_THAT(answer, HasSubstr("trace=0af7651916cd43dd8448eb211c80319c/"));
    EXPECT_THAT(answer, Not(HasSubstr("/b7ad6b7169203331/"))) << "the span is that of the server";
    EXPECT_THAT(answer, Not(HasSubstr("secret")));
    EXPECT_THAT(answer, Not(HasSubstr("0123456789abcdef")));
  }
  // The next request of a connection begins without the identity of the previous one.
  EXPECT_THAT(ask("/show", ""), HasSubstr("identity=nobody\n"));
}

TEST_F(RouteContext, RemovedFieldsBeyondTheLimitsOfMetadataAreHiddenToo) {
  start(true);
  std::string fields;
  for (int i = 0; i < 70; ++i) fields += "X-F" + std::to_string(i) + ": 1\r\n";
  EXPECT_THAT(ask("/show", fields + "X-Removed: secret\r\n"), Not(HasSubstr("secret")));
}

TEST_F(RouteContext, RepeatedFieldsAreOneListWithAllValues) {
  start(false);
  const std::string answer = ask("/show",
                                 "X-Forwarded-For: 6.6.6.6\r\nAccept: a\r\nx-forwarded-for: 10.0.0.9\r\nCookie: a=1\r\n"
                                 "Accept: b\r\nCookie: b=2\r\ntraceparent: " +
                                     std::string(parent) +
                                     "\r\ntracestate: a=1\r\nAuthorization: one\r\nAuthorization: two\r\n"
                                     "Content-Type: x/y\r\ntracestate: b=2\r\nContent-Type: x/z\r\nX-Kept:\r\n");
  EXPECT_THAT(answer, HasSubstr("x-forwarded-for=6.6.6.6, 10.0.0.9[6.6.6.6|10.0.0.9|] metadata 6.6.6.6, 10.0.0.9\n"));
  EXPECT_THAT(answer, HasSubstr("cookie=a=1; b=2[a=1|b=2|] metadata (none)\n"));
  EXPECT_THAT(answer, HasSubstr("accept=a, b[a|b|]"));
  // These are not lists.
  EXPECT_THAT(answer, HasSubstr("authorization=one[one|two|] metadata one\n"));
  EXPECT_THAT(answer, HasSubstr("content-type=x/y[x/y|x/z|]"));
  EXPECT_THAT(answer, HasSubstr("x-kept=[|] metadata \n"));
  EXPECT_THAT(answer, HasSubstr("/b7ad6b7169203331/a=1,"));
  EXPECT_THAT(answer, HasSubstr("b=2"));
}

TEST_F(RouteContext, ManyRepeatedFieldsStayWithinTheLimits) {
  options.message_bytes_max = 1 << 20;
  start(false);
  std::string fields;
  for (int i = 0; i < 90; ++i) fields += "X-Many: " + std::string(300, static_cast<char>('a' + i % 26)) + "\r\n";
  const std::string answer = ask("/hello", fields + "X-Name: me\r\n");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr(" me "));
}

Task<HttpResponse> names_method(HttpRequest& request) {
  HttpResponse response;
  response.status = 206;
  response.body = std::string(request.method()) + " of " + std::string(request.header("host").value_or("nobody"));
  co_return response;
}

// Each request is the first one of its connection: its first bytes decide the protocol.
TEST_F(ServerFixture, AnyMethodBeginsAConnection) {
  make_server();
  Http protocol = http();
  for (const char* const method : {"PURGE", "PROPFIND", "REPORT", "QUERY", "M-SEARCH", "get", "VERSION-CONTROL"}) {
    protocol.route(method, "/any", names_method);
  }
  server->enable(add_routes(std::move(protocol)));
  start_server();
  const auto ask = [&](std::string_view request) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes(std::string(request) + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    return socket.receive_all();
  };
  for (const char* const method : {"PURGE", "PROPFIND", "REPORT", "QUERY", "M-SEARCH", "get", "VERSION-CONTROL"}) {
    const std::string answer = ask(std::string(method) + " /any");
    EXPECT_THAT(answer, HasSubstr("HTTP/1.1 206 Partial Content\r\n")) << method;
    EXPECT_THAT(answer, HasSubstr(std::string(method) + " of a")) << method;
    EXPECT_THAT(ask(std::string(method) + " /hello"), HasSubstr("HTTP/1.1 405 Method Not Allowed\r\n")) << method;
    EXPECT_THAT(ask(std::string(method) + " /hello"), HasSubstr("Allow: GET, HEAD, POST\r\n")) << method;
  }
  EXPECT_THAT(ask("OPTIONS *"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(ask("PURGE http://b/any"), HasSubstr("PURGE of b"));
  EXPECT_THAT(ask("\r\nPURGE /any"), HasSubstr("PURGE of a"));
  EXPECT_THAT(ask("\r\nGET /hello"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(ask("GET /hello?\u00fc"), HasSubstr("HTTP/1.1 200"));
  // These are not requests of HTTP.
  for (const char* const other : {"GARBAGE", "SET key value", "PRI * HTTP/2.0", "@GET /any", "GET\t/any",
                                  "AMETHODTHATISLONGERTHANTHEFIRSTBYTES /any"}) {
    EXPECT_THAT(ask(other), Not(HasSubstr("HTTP/1.1 2"))) << other;
  }
  // The first bytes may come one by one.
  RawSocket slow = RawSocket::connected_to(server->address());
  for (const char c : std::string_view("\r\nPURGE /any HTTP/1.1\r\nHost: a\r\n\r\n")) {
    ASSERT_TRUE(slow.send(as_bytes(std::string_view(&c, 1))));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_THAT(slow.receive_text("of a"), HasSubstr("PURGE of a"));
}

}  // namespace
}  // namespace hawser::http_test
