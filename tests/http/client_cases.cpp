#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/http.h"
#include "hawser/http_client.h"
#include "tests/http/client_tools.h"

// HttpClient against a server of this library, and against scripted servers.
namespace hawser {
namespace http_client_test {

using namespace testing_tools;

inline std::atomic<int> held{0};

inline Task<HttpResponse> repeat(HttpRequest& request) {
  HttpResponse response;
  response.body = std::string(request.method()) + " " + std::string(request.query()) + " " +
                  std::string(request.header("Content-Type").value_or("none")) + " " + std::string(request.text());
  response.headers.emplace_back("X-Seen", std::string(request.header("X-One").value_or("nothing")));
  co_return response;
}
inline Task<HttpResponse> parts(HttpRequest&) {
  HttpResponse response;
  response.stream = [](HttpBodyWriter& writer) -> Task<void> {
    for (int i = 0; i < 40; ++i) {
      const std::string part = text_of(10'000, static_cast<char>('a' + i % 3));
      static_cast<void>(co_await writer.write(part));
    }
  };
  co_return response;
}
inline Task<HttpResponse> hold(HttpRequest& request) {
  held.fetch_add(1);
  static_cast<void>(co_await request.loop().sleep(1h, request.token()));
  held.fetch_sub(1);
  co_return HttpResponse{};
}

class HttpClients : public ::testing::Test {
 protected:
  HttpClients() {
    held = 0;
    ServerOptions options;
    options.loop.log = no_log();
    server_ = std::make_unique<Server>(options);
    server_->enable(http()
                        .route("GET", "/a", repeat)
                        .route("POST", "/a", repeat)
                        .route("GET", "/parts", parts)
                        .route("GET", "/hold", hold));
    const Result<void> started = server_->start();
    EXPECT_TRUE(started) << error_of(started);
  }
  std::string url(std::string_view path) const { return "http://" + server_->address() + std::string(path); }
  std::unique_ptr<Server> server_;
};

TEST_F(HttpClients, RequestsOverOneConnection) {
  with_client([this](HttpClient& client) -> Task<void> {
    auto got = co_await client.get(url("/a?b=c"));
    REQUIRE(got);
    EXPECT_EQ(got->status, 200);
    EXPECT_EQ(got->body, "GET b=c none ");
    EXPECT_EQ(got->header("x-seen"), "nothing");
    EXPECT_EQ(got->header("absent"), std::nullopt);
    auto posted = co_await client.post(url("/a"), "{}");
    REQUIRE(posted);
    EXPECT_EQ(posted->body, "POST  application/json {}");
    HttpClientRequest request;
    request.method = "HEAD";
    request.url = url("/a");
    request.headers.emplace_back("X-One", "1");
    auto head = co_await client.send(request);
    REQUIRE(head);
    EXPECT_EQ(head->body, "");
    EXPECT_EQ(head->header("X-Seen"), "1");
    auto streamed = co_await client.get(url("/parts"));
    REQUIRE(streamed);
    EXPECT_EQ(streamed->body.size(), 400'000U);
    auto missing = co_await client.get(url("/missing"));
    REQUIRE(missing);
    EXPECT_EQ(missing->status, 404);
    EXPECT_EQ(client.idle_connections(), 1U);
  });
  EXPECT_EQ(server_->counters().connections_accepted, 1U);
}

TEST_F(HttpClients, RequestsOfOneHostAreBounded) {
  HttpClientOptions options;
  options.connections_per_host_max = 2;
  options.idle_timeout = forever;
  with_client(
      [this](HttpClient& client) -> Task<void> {
        std::stop_source stop;
        Scope scope;
        int ended = 0;
        for (int i = 0; i < 5; ++i) {
          scope.spawn([](HttpClient& used, std::string to, std::stop_token token, int& count) -> Task<void> {
            HttpClientRequest request;
            request.url = std::move(to);
            request.token = std::move(token);
            auto got = co_await used.send(std::move(request));
            EXPECT_TRUE(is_error(got, ErrorCode::cancelled, "was cancelled"));
            ++count;
          }(client, url("/hold"), stop.get_token(), ended));
        }
        auto two = co_await eventually(*Loop::current(), [] { return held.load() == 2; });
        EXPECT_TRUE(two);
        co_await Loop::current()->sleep(20ms);
        EXPECT_EQ(held.load(), 2);
        stop.request_stop();
        co_await scope.join();
        EXPECT_EQ(ended, 5);
        auto got = co_await client.get(url("/a"));
        EXPECT_TRUE(got) << error_of(got);
      },
      options);
  EXPECT_EQ(server_->counters().connections_accepted, 3U);
}

TEST_F(HttpClients, IdleConnectionsCloseInTime) {
  HttpClientOptions options;
  options.idle_timeout = 5ms;
  with_client(
      [this](HttpClient& client) -> Task<void> {
        auto got = co_await client.get(url("/a"));
        EXPECT_TRUE(got) << error_of(got);
        auto closed =
            co_await eventually(*Loop::current(), [this] { return server_->counters().connections_open == 0; });
        EXPECT_TRUE(closed);
        EXPECT_EQ(client.idle_connections(), 0U);
        auto again = co_await client.get(url("/a"));
        EXPECT_TRUE(again) << error_of(again);
      },
      options);
}

TEST_F(HttpClients, DeadlineAndWrongRequests) {
  with_client([this](HttpClient& client) -> Task<void> {
    // Over an open connection the request is sent at once, however slow the machine is.
    auto opened = co_await client.get(url("/a"));
    EXPECT_TRUE(opened) << error_of(opened);
    HttpClientRequest slow;
    slow.url = url("/hold");
    slow.timeout = 20ms;
    auto late = co_await client.send(slow);
    EXPECT_TRUE(is_error(late, ErrorCode::deadline_exceeded, "it may have been executed"));
    for (const std::string_view wrong : {"", "httpss://a/", "http://", "https://", "://a/", "http:///a", "http://a:0/",
                                         "http://a:65536/", "http://a:1x/", "http://u@a/", "http://a/#b", "http://a b/",
                                         "http://[::1/", "http://a\r\nB: c/", "ftp://a/"}) {
      auto refused = co_await client.get(std::string(wrong));
      EXPECT_TRUE(is_error(refused, ErrorCode::invalid_argument, "the URL")) << wrong;
    }
    auto plain = co_await client.get("https://127.0.0.1:1/");
    EXPECT_TRUE(is_error(plain, ErrorCode::invalid_argument, "the option `security`"));
    for (const auto& [name, value] : {std::pair("Host", "b"), std::pair("content-length", "1"), std::pair("a b", "c"),
                                      std::pair("", "c"), std::pair("X", "a\r\nY: b")}) {
      HttpClientRequest request;
      request.url = url("/a");
      request.headers.emplace_back(name, value);
      auto refused = co_await client.send(request);
      EXPECT_TRUE(is_error(refused, ErrorCode::invalid_argument, "")) << name;
    }
    HttpClientRequest request;
    request.url = url("/a");
    request.method = "GET /b";
    auto refused = co_await client.send(request);
    EXPECT_TRUE(is_error(refused, ErrorCode::invalid_argument, "the method"));
  });
}

TEST(HttpClientAlone, ClosedConnectionsAreReplaced) {
  ScriptedServer server({ok("1") + std::string(ScriptedServer::closes), ok("2"), "", ok("3"), "", ""});
  with_client([&](HttpClient& client) -> Task<void> {
    auto first = co_await client.get(server.url());
    EXPECT_TRUE(first && first->body == "1") << error_of(first);
    // The server has closed the connection, whether or not the client has noticed it.
    auto second = co_await client.get(server.url());
    EXPECT_TRUE(second && second->body == "2") << error_of(second);
    // The third answer is missing: the reused connection ends, and the request is sent again.
    auto third = co_await client.get(server.url());
    EXPECT_TRUE(third && third->body == "3") << error_of(third);
    auto unknown = co_await client.post(server.url(), "x");
    EXPECT_TRUE(is_error(unknown, ErrorCode::outcome_unknown, "ended the connection"));
    auto again = co_await client.get(server.url());
    EXPECT_TRUE(is_error(again, ErrorCode::unavailable, "ended the connection"));
  });
}

TEST(HttpClientAlone, Bodies) {
  ScriptedServer server(
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\n" + ok("after"), "HTTP/1.1 204 No\r\n\r\n",
       "HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n",
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n",
       "HTTP/1.0 200 OK\r\n\r\nuntil the end" + std::string(ScriptedServer::closes)});
  with_client([&](HttpClient& client) -> Task<void> {
    for (const auto& [status, body] : {std::pair(200, "after"), std::pair(204, ""), std::pair(304, ""),
                                       std::pair(200, "abcde"), std::pair(200, "until the end")}) {
      auto got = co_await client.get(server.url());
      REQUIRE(got);
      EXPECT_EQ(got->status, status);
      EXPECT_EQ(got->body, body);
    }
  });
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClientAlone, HostileServers) {
  struct Case {
    std::string answer;
    ErrorCode code;
    std::string_view text;
  };
  std::string announcements;
  for (int i = 0; i < 101; ++i) announcements += "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
  const std::vector<Case> cases = {
      {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + ok("1"), ErrorCode::protocol_error, "status 101"},
      {announcements + ok("1"), ErrorCode::protocol_error, "more than 100 statuses below 200"},
      {ok("", "Content-Length: 3\r\n"), ErrorCode::protocol_error, "Content-Length is sent twice"},
      {"HTTP/2.0 200 OK\r\n\r\n", ErrorCode::protocol_error, "only HTTP/1.0"},
      {"HTTP/1.1 099 No\r\n\r\n", ErrorCode::protocol_error, "not a number from 100 to 999"},
      {"SSH-2.0-OpenSSH\r\n\r\n", ErrorCode::protocol_error, "no status"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", ErrorCode::protocol_error, "only the transfer coding"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", ErrorCode::limit_exceeded, "the body is too long"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", ErrorCode::limit_exceeded, "too long"},
      {"HTTP/1.0 200 OK\r\n\r\n" + std::string(2000, 'a'), ErrorCode::limit_exceeded, "the body is too long"},
      {"HTTP/1.1 200 OK\r\nA: " + std::string(70'000, 'a'), ErrorCode::limit_exceeded, "too long"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab" + std::string(ScriptedServer::closes), ErrorCode::unavailable,
       "ended the connection"},
  };
  for (const Case& one : cases) {
    ScriptedServer server({one.answer});
    HttpClientOptions options;
    options.body_bytes_max = 1000;
    with_client(
        [&](HttpClient& client) -> Task<void> {
          auto got = co_await client.get(server.url());
          EXPECT_TRUE(is_error(got, one.code, one.text)) << one.answer.substr(0, 80);
          EXPECT_EQ(client.idle_connections(), 0U);
        },
        options);
  }
}

// An answer behind the one that was asked for must not become the answer of the next request.
TEST(HttpClientAlone, AnswersThatNobodyAskedForAreNotUsed) {
  ScriptedServer server({ok("1") + ok("evil"), ok("2")});
  with_client([&](HttpClient& client) -> Task<void> {
    auto first = co_await client.get(server.url());
    EXPECT_TRUE(first && first->body == "1") << error_of(first);
    auto second = co_await client.get(server.url());
    EXPECT_TRUE(!second || second->body == "2") << second->body;
  });
}

TEST(HttpClientAlone, DestroyedWithARequestUnderWay) {
  ScriptedServer server({ok("1")});
  Loop loop({.log = no_log()});
  auto client = std::make_unique<HttpClient>(loop);
  loop.run([](std::unique_ptr<HttpClient>& used, std::string url) -> Task<void> {
    auto getting = used->get(std::move(url));
    Scope scope;
    std::string body;
    scope.spawn([](Task<Result<HttpClientResponse>> work, std::string& out) -> Task<void> {
      const auto got = co_await std::move(work);
      out = got ? got->body : error_of(got);
    }(std::move(getting), body));
    used.reset();
    co_await scope.join();
    EXPECT_EQ(body, "1");
  }(client, server.url()));
}

}  // namespace http_client_test
}  // namespace hawser
