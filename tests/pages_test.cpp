// Pages and /metrics of a server.
#include "hawser/pages.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/detail/json_transcoder.h"
#include "hawser/hawser.h"
#include "observe/access.h"
#include "observe/document.h"
#include "tests/raw_peer.h"
#include "tests/repeat_handler.h"

namespace hawser::pages_test {

using namespace testing_tools;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view hostile = "<script>alert(1)</script>\"'&\x1b[31m\x80";

std::string echo(std::string text) { return text; }
Task<std::string> wait(Context& context, std::string text) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  co_return text;
}

struct Response {
  int status = 0;
  std::string head;
  std::string body;
};

class Pages : public ::testing::Test {
 protected:
  static constexpr const char* token = "the token of a test";

  void start(PagesOptions pages = {}, ServerOptions options = {}) {
    options.loop.log = no_log();
    options.describe = false;  // The tests count methods.
    server = std::make_unique<Server>(options);
    server->register_handler<echo, wait>();
    for (int i = 0; i < more_methods; ++i) {
      server->add_method({.id = static_cast<std::uint32_t>(i + 1),
                          .name = "test.Many/Method" + std::to_string(i),
                          .handler = std::make_unique<Repeat>()});
    }
    server->add_method({.id = 0xFFFFFF01, .name = std::string(hostile), .handler = std::make_unique<Repeat>()});
    if (pages.change_token.empty()) pages.change_token = token;
    enable_pages(*server, std::move(pages));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  RawSocket asked(std::string_view request) const {
    RawSocket socket = RawSocket::connected_to(server->address());
    EXPECT_TRUE(socket.send(as_bytes(request)));
    return socket;
  }
  static Response receive(RawSocket& socket) {
    Response response;
    response.head = socket.receive_text("\r\n\r\n");
    if (response.head.size() < 12) return response;
    response.status = std::stoi(response.head.substr(9, 3));
    const std::size_t at = response.head.find("Content-Length: ");
    if (at == std::string::npos) return response;
    const auto body = socket.receive(std::stoul(response.head.substr(at + 16)));
    if (body) response.body = as_text(*body);
    return response;
  }
  Response ask(std::string_view method, std::string_view path, std::string_view fields = "",
               std::string_view host = "127.0.0.1") const {
    RawSocket socket =
        asked(std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: " + std::string(host) + "\r\n" +
              (method == "POST" ? "Hawser-Token: " + std::string(token) + "\r\n" : std::string()) +
              std::string(fields) + "\r\n");
    return receive(socket);
  }
  Response get(std::string_view path, std::string_view fields = "") const { return ask("GET", path, fields); }
  // Calls methods by their ids over the library's own protocol, without waiting for each reply.
  void call(std::uint32_t first, std::uint32_t count) const {
    RawSocket socket = RawSocket::greeted(server->address());
    for (std::uint32_t i = 0; i < count; ++i) {
      RawHeader header{.kind = wire::FrameKind::request,
                       .call = wire::CallId(0, static_cast<std::uint16_t>(1 + i)).number(),
                       .method = first + i};
      Octets frame = prefix(wire::header_bytes, 0);
      frame.resize(frame.size() + wire::header_bytes);
      write_raw_header(frame.data() + 8, header);
      ASSERT_TRUE(socket.send(frame));
      ASSERT_TRUE(socket.receive_frame(wire::FrameKind::response));
    }
  }
  // Begins a call that waits until it is stopped, and returns the connection.
  RawSocket waiting() const {
    RawSocket socket = RawSocket::greeted(server->address());
    using Facts = detail::MethodFacts<wait>;
    RawHeader header{.kind = wire::FrameKind::request,
                     .call = wire::CallId(0, 1).number(),
                     .method = Facts::id,
                     .signature = Facts::signature};
    Octets frame = prefix(wire::header_bytes + 4, 0);
    frame.resize(frame.size() + wire::header_bytes + 4);
    write_raw_header(frame.data() + 8, header);
    EXPECT_TRUE(socket.send(frame));
    return socket;
  }

  int more_methods = 0;
  std::unique_ptr<Server> server;
};

constexpr std::string_view html = "Accept: text/html\r\n";

TEST_F(Pages, EveryPageIsTextJsonAndHtml) {
  start({.title = std::string(hostile), .log = RecentLog(no_log())});
  call(0xFFFFFF01, 1);
  for (const observe::PageName& page : observe::page_names()) {
    const Response text = get(page.path);
    EXPECT_EQ(text.status, 200) << page.path << text.body;
    EXPECT_THAT(text.head, HasSubstr("Content-Type: text/plain")) << page.path;
    const Response json = get(std::string(page.path) + "?format=json");
    EXPECT_EQ(json.status, 200) << page.path;
    EXPECT_THAT(json.head, HasSubstr("Content-Type: application/json")) << page.path;
    EXPECT_EQ(json.body.front(), '{') << page.path;
    const Response shown = get(page.path, html);
    EXPECT_EQ(shown.status, 200) << page.path;
    EXPECT_THAT(shown.head, HasSubstr("Content-Security-Policy: default-src 'none'")) << page.path;
    EXPECT_THAT(shown.body, HasSubstr("<!doctype html>")) << page.path;
    EXPECT_THAT(shown.body, Not(HasSubstr("<script>alert"))) << page.path;
    EXPECT_THAT(shown.body, Not(HasSubstr("http://"))) << page.path << ": nothing is fetched from elsewhere";
    EXPECT_THAT(shown.body, Not(HasSubstr("style=\""))) << page.path << ": the policy forbids it";
  }
}

TEST_F(Pages, APageOfTheApplicationHasTheAccessAndTheFormatsOfTheOthers) {
  const auto rows = [](const HttpRequest&) -> std::vector<std::vector<ApplicationPage::Value>> {
    return {{std::string(hostile), std::uint64_t{12345}}, {"short"}};
  };
  PagesOptions pages;
  pages.application = {{.path = "/things",
                        .title = "Things " + std::string(hostile),
                        .about = "What this program has.",
                        .columns = {"name", "read_bytes"},
                        .rows = rows}};
  start(std::move(pages));
  const std::string text = get("/things").body;
  EXPECT_THAT(text, HasSubstr("12,345"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(text.find("Things"), text.rfind("Things")) << "the title is shown once";
  EXPECT_THAT(get("/things?format=json").body, HasSubstr("\"read_bytes\":12345"));
  const Response shown = get("/things", html);
  EXPECT_EQ(shown.status, 200);
  EXPECT_THAT(shown.body, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(shown.body, HasSubstr("read bytes"));
  EXPECT_THAT(shown.body, HasSubstr("short"));
  EXPECT_THAT(get("/", html).body, HasSubstr("<a href=\"/things\">"));
  EXPECT_EQ(get("/things", "Forwarded: for=192.0.2.1\r\n").status, 403);
}

TEST_F(Pages, AHostileNameIsHarmlessEverywhere) {
  start();
  call(0xFFFFFF01, 1);
  const std::string shown = get("/status", html).body;
  EXPECT_THAT(shown, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;?[31m?"));
  const std::string json = get("/status?format=json").body;
  EXPECT_THAT(json, HasSubstr("\\u003cscript\\u003ealert(1)\\u003c/script\\u003e\\\"'\\u0026?[31m?"));
  const std::string text = get("/status").body;
  EXPECT_THAT(text, HasSubstr("<script>alert(1)</script>\"'&?[31m?"));  // No control character reaches the terminal.
  const std::string metrics = get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("method=\"<script>alert(1)</script>\\\"'&\x1b[31m?\",code=\"ok\"} 1\n"));
}

TEST_F(Pages, StatusShowsTheMethodsThatWereCalled) {
  start();
  call(0xFFFFFF01, 1);
  const std::string page = get("/status?format=json").body;
  EXPECT_THAT(page, HasSubstr("\"calls\":1,\"errors\":0"));
  EXPECT_THAT(get("/status").body, HasSubstr("Methods that have not been called: 2."));
  EXPECT_THAT(get("/status?method=2&x=<b>", html).body, HasSubstr("?format=json&amp;method=2&amp;x="));
  EXPECT_THAT(get("/status?method=2&format=json").body, HasSubstr("\"code\":\"ok\",\"calls\":1"));
  EXPECT_EQ(get("/status?method=9999999999999999999999").status, 200);
}

TEST_F(Pages, MetricsAreThoseOfPrometheusOrOpenMetrics) {
  MetricRegistry application;
  application.counter({"shop_orders", "Orders."}).add(3);
  start({.registry = &application});
  const Response old = get("/metrics");
  EXPECT_THAT(old.head, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(old.body, HasSubstr("shop_orders_total 3\n"));
  EXPECT_THAT(old.body, Not(HasSubstr("# EOF")));
  EXPECT_THAT(old.body, HasSubstr("hawser_server_protocol_connections_total{protocol=\"http\"} 1\n"));
  EXPECT_THAT(old.body, HasSubstr("hawser_server_protocol_connections_total{protocol=\"hawser\"} 0\n"));
  EXPECT_THAT(old.body, HasSubstr("\nprocess_resident_memory_bytes "));
  const Response open =
      get("/metrics", "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2\r\n");
  EXPECT_THAT(open.head, HasSubstr("Content-Type: application/openmetrics-text"));
  EXPECT_THAT(open.body, HasSubstr("# UNIT hawser_loop_busy_seconds seconds\n"));
  EXPECT_THAT(open.body, HasSubstr("shop_orders_total 3\n"));
  EXPECT_EQ(open.body.find("# EOF\n"), open.body.size() - 6);
}

TEST_F(Pages, MemoryShowsWhatThreadsKeep) {
  start();
  const Result<void> ran = hawser::sync_wait([](std::string address) -> Task<Result<void>> {
    Client client({.transports = {.required = "stream"}});
    auto connected = co_await client.connect(address);
    if (!connected) co_return connected;
    auto reply = co_await client.call<echo>(std::string(100'000, 'x'));
    if (!reply) co_return std::unexpected(reply.error());
    co_return Result<void>{};
  }(server->address()));
  ASSERT_TRUE(ran) << error_of(ran);
  const std::string text = get("/memory").body;
  EXPECT_THAT(text, HasSubstr("Memory that threads keep for their next use"));
  EXPECT_THAT(text, HasSubstr("What a thread has not used for 10 s is returned to the allocator."));
  EXPECT_THAT(text, HasSubstr("loop 0"));
  const std::string json = get("/memory?format=json").body;
  EXPECT_THAT(json, HasSubstr("{\"owner\":\"loop 0\",\"threads\":1,\"blocks\":"));
  EXPECT_THAT(json, HasSubstr("{\"owner\":\"offload, loop 0\",\"threads\":"));
  EXPECT_THAT(json, HasSubstr("\"allocator\":{\"used\":"));
  const std::string metrics = get("/metrics").body;
  for (const std::string cache : {"messages", "coroutines", "tls"}) {
    EXPECT_THAT(metrics, HasSubstr("\nhawser_loop_cached_bytes{loop=\"0\",cache=\"" + cache + "\"} "));
    EXPECT_THAT(metrics, HasSubstr("\nhawser_loop_offload_cached_bytes{loop=\"0\",cache=\"" + cache + "\"} "));
  }
  EXPECT_THAT(metrics, Not(HasSubstr("\nhawser_loop_cached_bytes{loop=\"0\",cache=\"messages\"} 0\n")))
      << "the request was in a block";
}

TEST_F(Pages, HealthAsksTheApplication) {
  std::atomic<bool> good{true};
  start({.reporters = {{"database", [&]() -> Result<void> {
                          if (good.load()) return {};
                          return fail(ErrorCode::unavailable, "no route to 10.0.0.1");
                        }}}});
  EXPECT_EQ(get("/health").body, "OK\ndatabase: OK\n");
  good.store(false);
  const Response ready = get("/health/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, "not ready\ndatabase: no route to 10.0.0.1\n");
  EXPECT_EQ(get("/health", "X-Forwarded-For: 1.2.3.4\r\n").body, "not ready\ndatabase: not ready\n");
  EXPECT_EQ(get("/health/live").status, 200);
  good.store(true);
  EXPECT_EQ(get("/health?service=shop").status, 404);
  const ServerHealth health(*server);
  health.add({.name = "cache", .check = [] { return fail(ErrorCode::unavailable, "cold"); }, .service = "shop"});
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/health/ready?service=shop").body, "not ready\ndatabase: OK\ncache: cold\n");
  health.set("", false);
  EXPECT_EQ(get("/health").body, "not ready\nserver: the program has set it to not serving\ndatabase: OK\n");
  EXPECT_EQ(get("/health").status, 503);
}

TEST_F(Pages, ConnectionsShowTheTransportAndWhyNoOther) {
  start();
  RawSocket peer = RawSocket::greeted(server->address());
  const std::string page = get("/connections?format=json").body;
  EXPECT_THAT(page, HasSubstr("\"protocol\":\"hawser\",\"transport\":\"tcp\""));
  EXPECT_THAT(page, HasSubstr("shm: the client did not offer it"));
  EXPECT_THAT(page, HasSubstr("\"protocol\":\"http\""));
  // Both connections are TCP, which measures the round trip.
  for (const std::string_view key : {"round_trip", "window", "retransmissions"}) {
    const std::string field = "\"" + std::string(key) + "\":";
    EXPECT_THAT(page, HasSubstr(field));
    EXPECT_THAT(page, Not(HasSubstr(field + "\"-\""))) << key;
  }
  EXPECT_THAT(page, Not(HasSubstr("\"window\":0,")));
}

TEST_F(Pages, CallsInFlightAreShownAndOneIsCancelled) {
  start({}, {.threads = 2});
  RawSocket first = waiting();
  RawSocket second = waiting();
  std::string page;
  ASSERT_TRUE(soon([&] {
    page = get("/calls?format=json").body;
    return page.find("\"id\"") != std::string::npos && page.find("wait", page.find("wait") + 1) != std::string::npos;
  })) << page;
  const std::size_t at = page.find("\"method\":\"hawser::pages_test::wait\"");
  ASSERT_NE(at, std::string::npos) << page;
  const std::size_t begin = page.rfind("\"id\":\"", at) + 6;
  const std::string id = page.substr(begin, page.find('"', begin) - begin);
  EXPECT_EQ(ask("GET", "/calls/cancel?id=" + id).status, 405);
  EXPECT_EQ(ask("POST", "/calls/cancel?id=" + id, "Sec-Fetch-Site: cross-site\r\n").status, 403);
  EXPECT_EQ(ask("POST", "/calls/cancel?id=" + id, "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(ask("POST", "/calls/cancel?id=" + id, "Origin: null\r\n").status, 403);
  EXPECT_EQ(ask("POST", "/calls/cancel?id=" + id, "", "evil.example").status, 403);
  for (const char* const wrong : {"", "1", "1.2.3", "1.2.3.", "1.2.3.4x", "9.9.9.9", "-1.0.0.0"}) {
    EXPECT_GE(ask("POST", std::string("/calls/cancel?id=") + wrong).status, 400) << wrong;
  }
  // A number of 33 bits whose low bits are those of the call.
  const std::size_t last = id.rfind('.') + 1;
  const std::string beyond = id.substr(0, last) + std::to_string(std::stoull(id.substr(last)) + (1ULL << 32));
  EXPECT_EQ(ask("POST", "/calls/cancel?id=" + beyond).status, 400);
  EXPECT_EQ(ask("POST", "/calls/cancel?id=" + id, "Origin: http://127.0.0.1\r\nSec-Fetch-Site: same-origin\r\n").status,
            200);
  EXPECT_TRUE(soon([&] { return get("/calls?format=json").body.find("\"id\":\"" + id) == std::string::npos; }));
  EXPECT_EQ(ask("POST", "/calls/cancel?id=" + id).status, 404);
  EXPECT_THAT(get("/status?format=json").body, HasSubstr("\"in_flight\":1"));  // The other one.
}

// An operator must reach a server that is full, to end what fills it.
TEST_F(Pages, AreServedBeyondCallsMax) {
  start({.log = RecentLog(no_log())}, {.calls_max = 1});
  RawSocket only = waiting();
  ASSERT_TRUE(soon([&] { return server->counters().calls_in_flight == 1; }));
  EXPECT_EQ(ask("POST", "/hawser::pages_test::echo").status, 503);
  for (const char* const page : {"/", "/status", "/metrics", "/health/ready"}) EXPECT_EQ(get(page).status, 200) << page;
  const std::string page = get("/calls?format=json").body;
  const std::size_t begin = page.find("\"id\":\"") + 6;
  ASSERT_NE(page.find("\"id\":\""), std::string::npos) << page;
  const std::string id = page.substr(begin, page.find('"', begin) - begin);
  EXPECT_EQ(ask("POST", "/calls/cancel?id=" + id).status, 200);
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
}

TEST_F(Pages, AreForLoopbackUnlessTheProgramSaysOtherwise) {
  start();
  EXPECT_EQ(ask("GET", "/status", "", "evil.example").status, 403);  // A browser that an attacker's DNS led here.
  EXPECT_EQ(ask("GET", "/metrics", "", "evil.example:80").status, 403);
  EXPECT_EQ(ask("GET", "/status", "", "localhost:80").status, 200);
  EXPECT_EQ(ask("GET", "/status", "", "[::1]:80").status, 200);
  for (const char* const name : {"X-Forwarded-For",
                                 "x-forwarded-proto",
                                 "X-Forwarded-Host",
                                 "Forwarded",
                                 "Via",
                                 "X-Real-IP",
                                 "X-Client-IP",
                                 "CF-Connecting-IP",
                                 "X-Forwarded",
                                 "X-Forwarded-Ssl",
                                 "X-Forwarded-Scheme",
                                 "X-Forwarded-Client-Cert",
                                 "X-Forwarded-Prefix",
                                 "X-Forwarded-User",
                                 "X_Forwarded_For",
                                 "X-Cluster-Client-Ip",
                                 "Fastly-Client-IP",
                                 "Tailscale-User-Login",
                                 "X-Original-URL",
                                 "X-ProxyUser-Ip",
                                 "Fly-Client-IP",
                                 "X-Envoy-Original-Path",
                                 "WL-Proxy-Client-IP",
                                 "X-Remote-User"}) {
    EXPECT_EQ(get("/status", std::string(name) + ": 127.0.0.1\r\n").status, 403) << name;
  }
  // Fields of clients of this machine.
  for (const char* const name :
       {"User-Agent", "X-Request-Id", "X-Requested-With", "Referer", "DNT", "Sec-Fetch-Mode"}) {
    EXPECT_EQ(get("/status", std::string(name) + ": 1\r\n").status, 200) << name;
  }
  EXPECT_TRUE(observe::is_loopback("127.0.0.1:80"));
  EXPECT_TRUE(observe::is_loopback("[::1]:80"));
  EXPECT_TRUE(observe::is_loopback("[::ffff:127.0.0.1]:80"));
  EXPECT_TRUE(observe::is_loopback("unix:pid 7"));
  EXPECT_FALSE(observe::is_loopback("10.0.0.1:80"));
  EXPECT_FALSE(observe::is_loopback("[fe80::1]:80"));
  EXPECT_FALSE(observe::is_loopback("unknown"));
}

TEST_F(Pages, MayBeOffOrForAll) {
  start({.pages = PageAccess::off, .metrics = PageAccess::all});
  EXPECT_EQ(get("/status").status, 404);
  EXPECT_EQ(ask("POST", "/calls/cancel").status, 404);
  EXPECT_EQ(ask("GET", "/metrics", "X-Forwarded-For: 1.2.3.4\r\n", "evil.example").status, 200);
}

TEST_F(Pages, TheLevelOfTheLogIsChanged) {
  std::atomic<int> passed{0};
  const RecentLog log([&](LogLevel, std::string_view, std::string_view) { passed.fetch_add(1); });
  start({.log = log});
  const LogSink sink = log.sink();
  sink(LogLevel::info, "test", hostile);
  EXPECT_EQ(passed.load(), 0);
  EXPECT_EQ(ask("POST", "/log/level?level=shout").status, 400);
  EXPECT_EQ(ask("POST", "/log/level?level=info").status, 200);
  sink(LogLevel::info, "test", "more");
  EXPECT_EQ(passed.load(), 1);
  EXPECT_THAT(get("/log").body, HasSubstr("<script>alert(1)</script>\"'&?[31m?"));
  for (int i = 0; i < 600; ++i) sink(LogLevel::info, "test", std::string(10'000, 'x'));
  EXPECT_LT(get("/log").body.size(), 100'000u);
}

TEST_F(Pages, TenThousandMethodsAreShownInParts) {
  more_methods = 10'000;
  start();
  call(1, 10'000);
  const Response first = get("/status", html);
  EXPECT_LT(first.body.size(), 200'000u);
  EXPECT_THAT(first.body, HasSubstr("Further methods that were called: 9,900."));
  EXPECT_THAT(get("/status?from=9950").body, HasSubstr("test.Many/Method"));
  const std::string metrics = get("/metrics").body;
  EXPECT_LT(metrics.size(), 2'000'000u);
  EXPECT_THAT(metrics, HasSubstr("hawser_server_method_calls_total{overflow=\"true\",code=\"ok\"} 9752\n"));
}

TEST_F(Pages, ManyConnectionsAreShownInParts) {
  start({}, {.threads = 2, .ping_interval = std::chrono::hours(1)});  // The peers answer no PING.
  std::vector<RawSocket> peers;
  for (int i = 0; i < 250; ++i) peers.push_back(RawSocket::greeted(server->address()));
  std::string path = "/connections?format=json";
  std::size_t shown = 0;
  for (int part = 0; part < 10 && !path.empty(); ++part) {
    const std::string page = get(path).body;
    std::size_t rows = 0;
    for (std::size_t at = 0; (at = page.find("\"protocol\":\"hawser\"", at)) != std::string::npos; ++at) ++rows;
    EXPECT_LE(rows, 100u);
    shown += rows;
    const std::size_t next = page.find("\"connections_next\":\"");
    path.clear();
    if (next == std::string::npos) break;
    for (const char c : page.substr(next + 20, page.find('"', next + 20) - next - 20)) path += c;
    for (std::size_t at; (at = path.find("\\u0026")) != std::string::npos;) path.replace(at, 6, "&");
    path += "&format=json";
  }
  EXPECT_EQ(shown, 250u);
}

TEST_F(Pages, AReaderThatDoesNotReadHoldsNobodyUp) {
  start();
  RawSocket lazy = asked("");
  const std::string request = "GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\n\r\n";
  for (int i = 0; i < 2000; ++i) lazy.send_some(as_bytes(request));
  EXPECT_EQ(get("/status").status, 200);
  EXPECT_EQ(get("/connections").status, 200);
}

TEST_F(Pages, AStopEndsPagesAndTheirSampling) {
  start({}, {.threads = 2});
  std::vector<RawSocket> readers;
  for (int i = 0; i < 20; ++i) {
    for (const std::string_view path : {"/connections", "/calls", "/metrics", "/rdma"}) {
      readers.push_back(asked("GET " + std::string(path) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"));
    }
  }
  server->stop();
  for (RawSocket& reader : readers) {
    const Response response = receive(reader);
    // Answered before the stop, refused after it had begun, or closed with the connection.
    const bool refused = response.status == 503 && response.body.find("stopping") != std::string::npos;
    EXPECT_TRUE(response.status == 200 || response.status == 0 || refused) << response.status << response.body;
  }
}

TEST_F(Pages, WorkOnALoopOfTheCaller) {
  Loop loop({.log = no_log()});
  Server own(loop, {});
  own.register_handler<echo>();
  enable_pages(own);
  ASSERT_TRUE(own.start());
  std::string answer;
  std::thread reader([&] {
    RawSocket socket = RawSocket::connected_to(own.address());
    socket.send(as_bytes("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"));
    answer = receive(socket).body;
    loop.post([&] { loop.stop(); });
  });
  loop.run();
  reader.join();
  EXPECT_THAT(answer, HasSubstr("hawser_server_connections_open 1\n"));
  loop.run(own.shut_down(0s));
}

std::atomic<int> blocked{0};
std::atomic<bool> unblocked{false};
void block() {
  blocked.fetch_add(1);
  unblocked.wait(false);
}

// A loop that made them itself would hold up its other clients.
TEST_F(Pages, MetricsAreNotMadeOnALoopWhileAllThreadsAreBusy) {
  server = std::make_unique<Server>(
      ServerOptions{.loop = {.offload_threads_max = 1, .offload_queue_max = 1, .log = no_log()}});
  server->register_handler<block>({.offload = true});
  enable_pages(*server);
  ASSERT_TRUE(server->start());
  blocked = 0;
  unblocked = false;
  RawSocket caller = RawSocket::greeted(server->address());
  for (std::uint16_t slot = 0; slot < 2; ++slot) {  // One runs, and one waits: the queue has one place.
    caller.send(message({.kind = wire::FrameKind::request,
                         .call = wire::CallId(slot, 1).number(),
                         .method = detail::MethodFacts<block>::id,
                         .signature = detail::MethodFacts<block>::signature}));
    EXPECT_TRUE(soon([&] { return blocked == 1 && server->counters().calls_in_flight == slot + 1U; }));
  }
  const Response refused = get("/metrics");
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("offload_queue_max"));
  EXPECT_EQ(get("/health").status, 200);
  unblocked = true;
  unblocked.notify_all();
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
  EXPECT_EQ(get("/metrics").status, 200);
}

TEST(PageText, OfAQueryIsDecodedAndEncoded) {
  EXPECT_EQ(observe::query_of("a=1&b=x%20y+z&c", "b"), "x y z");
  EXPECT_EQ(observe::query_of("a=1&b=x", "c"), "");
  EXPECT_EQ(observe::query_of("a=%", "a"), "%");
  EXPECT_EQ(observe::query_of("a=%4", "a"), "%4");
  EXPECT_EQ(observe::query_of("a=%zz", "a"), "%zz");
  EXPECT_EQ(observe::query_value("a b/\xff"), "a%20b%2F%FF");
}

}  // namespace hawser::pages_test
