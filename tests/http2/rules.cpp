#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hawser/authorization.h"
#include "hawser/grpc.h"
#include "hawser/grpc_health.h"
#include "hawser/grpc_reflection.h"
#include "hawser/hawser.h"
#include "hawser/http.h"
#include "hawser/pages.h"
#include "hawser/recent_log.h"
#include "hawser/recorder.h"
#include "tests/http2_client.h"
#include "tests/http_routes.h"
#include "tests/raw_peer.h"
#include "tests/repeat_handler.h"

// Clients of HTTP and gRPC that try to get around the rules of a server.
namespace hawser::http_test {
namespace {

using Fields = Http2Client::Fields;

std::atomic<int> denied_run{0};

// A method that nobody may call.
class Denied final : public detail::Handler {
 public:
  void serve(const detail::IncomingRequest& request) override {
    ++denied_run;
    request.sink.reply_error(request.call, Error::of_call(ErrorCode::internal, "it ran"));
  }
};
Task<HttpResponse> denied_route(HttpRequest&) {
  ++denied_run;
  co_return HttpResponse();
}
Task<HttpResponse> denied_upload(HttpRequest&, HttpBodyReader&) {
  ++denied_run;
  co_return HttpResponse();
}

class RulesOfHttp : public ::testing::Test {
 protected:
  RulesOfHttp() {
    denied_run = 0;
    ServerOptions options;
    options.loop.log = LogSink([this](LogLevel, std::string_view component, std::string_view text) {
      const std::lock_guard lock(mutex);
      if (component == "audit") audit.emplace_back(text);
    });
    server = std::make_unique<Server>(options);
    server->use(BearerTokens().add("alice-0123456789abc", Identity{.subject = "alice"}));
    server->use(Authorization({.log_lines_per_second_max = 1'000'000})
                    .allow("vault.Open/*", anyone())
                    .allow("vault.", anyone())
                    .allow("grpc.health.v1.Health/Check", anyone())
                    .allow("GET /open", anyone())
                    .allow("GET /files/open/*", anyone())
                    .allow("GET /metrics", anyone())
                    .allow("GET /calls", anyone())
                    .allow("GET /alice", token_subject("alice")));
    add("vault.Open/Say");
    add("vault.Safe/Take", true);
    add("vault.Safe/Watch", true, true);
    add("vault.OpenSafe/Take", true);
    health = std::make_unique<GrpcHealth>(*server);
    add_grpc_reflection(*server);
    server->enable(grpc());
    PagesOptions pages;
    pages.log.emplace();
    pages.recorder.emplace();
    enable_pages(*server, std::move(pages),
                 http()
                     .route("GET", "/open", hello)
                     .route("GET", "/alice", hello)
                     .route("POST", "/open", denied_route)
                     .route("GET", "/safe", denied_route)
                     .route("PUT", "/upload", denied_upload)
                     .route("GET", "/files/*", hello)
                     .route("GET", "/files/safe/*", denied_route)
                     .route("GET", "/users/{id}", denied_route));
    EXPECT_TRUE(server->start());
  }
  void add(const std::string& name, bool denied = false, bool streams = false) {
    static std::uint32_t id = 1000;
    std::unique_ptr<detail::Handler> handler;
    if (denied) {
      handler = std::make_unique<Denied>();
    } else {
      handler = std::make_unique<Repeat>();
    }
    server->add_method({.id = ++id,
                        .name = name,
                        .handler = std::move(handler),
                        .streams_out = streams,
                        .json = std::make_shared<BytesTranscoder>()});
  }
  static std::string grpc_message(std::string_view bytes) {
    std::string out(5, '\0');
    out[4] = static_cast<char>(bytes.size());
    return out + std::string(bytes);
  }
  std::string status_of(const std::string& request) const {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes(request));
    const std::string line = socket.receive_text("\r\n");
    return line.size() > 12 ? line.substr(9, 3) : line;
  }
  std::size_t lines(std::string_view part) {
    const std::lock_guard lock(mutex);
    return static_cast<std::size_t>(
        std::ranges::count_if(audit, [&](const std::string& line) { return line.find(part) != std::string::npos; }));
  }

  std::mutex mutex;
  std::vector<std::string> audit;
  std::unique_ptr<Server> server;
  std::unique_ptr<GrpcHealth> health;
};

TEST_F(RulesOfHttp, WhatIsAllowedIsServed) {
  Http2Client client(server->address());
  EXPECT_EQ(client.post("/vault.Open/Say", "hi", {{"content-type", "application/proto"}}).body, "hi");
  const auto over_grpc =
      client.post("/vault.Open/Say", grpc_message("hi"), {{"content-type", "application/grpc"}, {"te", "trailers"}});
  EXPECT_TRUE(over_grpc.has("grpc-status", "0"));
  EXPECT_EQ(client.ask("GET", "/open").status, 200);
  EXPECT_EQ(client.ask("GET", "/files/open/a").status, 200);
  EXPECT_EQ(client.ask("GET", "/alice", {{"authorization", "Bearer alice-0123456789abc"}}).status, 200);
  EXPECT_EQ(client.ask("GET", "/alice", {{"authorization", "Bearer alice-0123456789abd"}}).status, 401);
  EXPECT_EQ(client.ask("GET", "/alice").status, 401);
  EXPECT_EQ(status_of("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200");
}

TEST_F(RulesOfHttp, NoSpellingOfAMethodPassesARule) {
  std::vector<std::string> paths;
  for (const std::string& name :
       {std::string("vault.Safe/Take"), std::string("vault.Safe/Watch"), std::string("vault.OpenSafe/Take")}) {
    std::string lower = name;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::size_t slash = name.find('/');
    const std::string encoded = "%76" + name.substr(1);
    const std::string service = name.substr(0, slash);
    const std::string method = name.substr(slash + 1);
    const std::vector<std::string> spellings = {"/" + name,
                                                "//" + name,
                                                "/" + name + "/",
                                                "/" + lower,
                                                "/" + encoded,
                                                "/" + service + "%2F" + method,
                                                "/" + service + "//" + method,
                                                "/./" + name,
                                                "/vault.Open/../" + name,
                                                "/vault.Open/%2e%2e/" + name,
                                                "/vault.Open/Say/../../" + name,
                                                "/" + name + "?x",
                                                "/" + name + "%00",
                                                "/" + name + "#vault.Open/Say",
                                                "/" + name + ";a=b",
                                                "/ " + name,
                                                "/" + name + "%20",
                                                "http://test/" + name,
                                                name,
                                                "*",
                                                "/\\" + name,
                                                "/" + name + "/../Take"};
    for (const std::string& path : spellings) {
      paths.push_back(path);
    }
  }
  for (const std::string& path : paths) {
    for (const Fields& fields : std::vector<Fields>{
             {{"content-type", "application/grpc"}, {"te", "trailers"}},
             {{"content-type", "application/grpc+proto"}, {"te", "trailers"}},
             {{"content-type", "application/grpc"}, {"te", "trailers"}, {"x-http-method-override", "vault.Open/Say"}},
             {{"content-type", "application/proto"}},
             {{"content-type", "application/json"}}}) {
      for (const char* const method : {"POST", "GET", "PUT"}) {
        // A path that is not valid may end the connection.
        Http2Client client(server->address());
        const std::int32_t id = client.begin(method, path, fields, {grpc_message("hi")});
        client.until([&] { return client.responses[id].closed || client.ended; });
        const Http2Client::Response& answer = client.responses[id];
        EXPECT_FALSE(answer.has("grpc-status", "0")) << method << " " << path;
        if (!answer.fields.contains("grpc-status")) {
          EXPECT_NE(answer.status, 200) << method << " " << path;
        }
      }
    }
    for (const char* const method : {"POST", "GET"}) {
      const std::string status = status_of(std::string(method) + " " + path +
                                           " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/proto\r\n"
                                           "X-HTTP-Method-Override: GET\r\nContent-Length: 2\r\n\r\nhi");
      EXPECT_NE(status, "200") << method << " " << path;
    }
  }
  EXPECT_EQ(denied_run, 0);
  EXPECT_EQ(lines("allowed"), 0U);
}

TEST_F(RulesOfHttp, NoSpellingOfARoutePassesARule) {
  for (const char* const target : {"GET /safe",
                                   "GET /safe?/open",
                                   "GET /safe#/open",
                                   "GET //safe",
                                   "GET /safe/",
                                   "GET /SAFE",
                                   "GET /%73afe",
                                   "GET /open/../safe",
                                   "GET /open/%2e%2e/safe",
                                   "GET /files/safe/a",
                                   "GET /files/open/../safe/a",
                                   "GET /files/open/%2e%2e/safe/a",
                                   "GET /files/open%2f..%2fsafe/a",
                                   "GET /files/open/..%5csafe/a",
                                   "GET /files/secret",
                                   "GET /files/openness",
                                   "POST /open",
                                   "PUT /upload",
                                   "GET /users/1",
                                   "HEAD /safe",
                                   "get /safe",
                                   "OPTIONS /safe",
                                   "CONNECT /safe",
                                   "GET http://localhost/safe",
                                   "GET http://localhost/files/safe/a",
                                   "PUT /open",
                                   "GET /users/..",
                                   "GET /users/%2e",
                                   "GET /alice"}) {
    const std::string status =
        status_of(std::string(target) + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    EXPECT_FALSE(status.starts_with("2")) << target << " gave " << status;
    const std::string text = target;
    const std::size_t space = text.find(' ');
    Http2Client client(server->address());
    const std::int32_t id = client.begin(text.substr(0, space), text.substr(space + 1));
    client.until([&] { return client.responses[id].closed || client.ended; });
    EXPECT_NE(client.responses[id].status, 200) << target;
  }
  EXPECT_EQ(denied_run, 0);
}

// Pages are routes: rules cover them beside their own access.
TEST_F(RulesOfHttp, PagesAndServicesOfTheServerItself) {
  for (const char* const target :
       {"POST /options/change", "POST /calls/cancel", "POST /log/level", "POST /record", "GET /options",
        "GET /connections", "GET /profile/cpu?seconds=1", "GET /profile/offcpu", "GET /profile/allocations",
        "GET /profile/heap", "GET /profile", "GET /", "GET /log", "GET /traces", "GET /memory", "GET /version",
        "GET /health/ready", "GET /health"}) {
    EXPECT_EQ(status_of(std::string(target) +
                        " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
                        "Content-Length: 0\r\n\r\n"),
              "401")
        << target;
    const std::string text = target;
    const std::size_t space = text.find(' ');
    Http2Client pages(server->address());
    EXPECT_EQ(pages.ask(text.substr(0, space), text.substr(space + 1)).status, 401) << target;
  }
  EXPECT_EQ(status_of("GET /calls HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200");
  Http2Client client(server->address());
  const Fields fields = {{"content-type", "application/grpc"}, {"te", "trailers"}};
  const auto grpc_status = [&](const std::string& path) {
    Http2Client::Response answer = client.post(path, grpc_message(""), fields);
    return answer.fields["grpc-status"];
  };
  EXPECT_EQ(grpc_status("/grpc.health.v1.Health/Check"), "0");
  EXPECT_EQ(grpc_status("/grpc.health.v1.Health/Watch"), "16");
  EXPECT_EQ(grpc_status("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"), "16");
  EXPECT_EQ(grpc_status("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"), "16");
  EXPECT_EQ(grpc_status("/vault.Safe/Take"), "16");
  EXPECT_EQ(grpc_status("/vault.Safe/Watch"), "16");
  EXPECT_EQ(denied_run, 0);
}

// One line for each refusal, by whichever interceptor, and no other line by a name.
TEST_F(RulesOfHttp, EachRefusalIsAuditedOnce) {
  EXPECT_EQ(status_of("GET /safe HTTP/1.1\r\nHost: a\r\n\r\n"), "401");
  EXPECT_EQ(status_of("GET /files/%0aallowed%20all\x01 HTTP/1.1\r\nHost: a\r\n\r\n").substr(0, 1), "4");
  EXPECT_EQ(status_of("GET /safe HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer wrong\r\n\r\n"), "401");
  EXPECT_EQ(status_of("GET /safe HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer alice-0123456789abc\r\n\r\n"), "403");
  EXPECT_EQ(status_of("GET /files/" + std::string(4000, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n"), "401");
  EXPECT_EQ(lines("refused GET /safe over http by nobody at 127.0.0.1:"), 2U);
  EXPECT_EQ(lines(": the server does not know this token"), 1U);
  EXPECT_EQ(lines("refused GET /safe over http by token alice at "), 1U);
  const std::lock_guard lock(mutex);
  for (const std::string& line : audit) {
    EXPECT_LT(line.size(), 900U);
    EXPECT_EQ(line.find_first_of("\n\r\x01"), std::string::npos);
    EXPECT_TRUE(line.starts_with("refused "));
  }
  EXPECT_GE(audit.size(), 4U);
  EXPECT_LE(audit.size(), 5U);
}

}  // namespace
}  // namespace hawser::http_test
