#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hawser/interceptor.h"
#include "hawser/server_metrics.h"
#include "hawser/tracing.h"
#include "tests/http_server_fixture.h"

// Metrics, spans and interceptors name a route by the path that it was added with: clients cannot make up more names.
namespace hawser::http_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Task<HttpResponse> gone_page(HttpRequest&) {
  HttpResponse response;
  response.status = 410;
  response.body = "gone";
  co_return response;
}

struct Names {
  std::mutex lock;
  std::vector<std::string> lines;
  std::vector<std::string> all() {
    const std::lock_guard guard(lock);
    return lines;
  }
  void add(const auto& call) {
    const std::lock_guard guard(lock);
    if (call.protocol() == "http") lines.push_back(std::string(call.method()) + " = " + std::string(call.route()));
  }
};

class NamesRoutes {
 public:
  explicit NamesRoutes(std::shared_ptr<Names> names, bool skip) : names_(std::move(names)), skip_(skip) {}
  Task<Result<void>> operator()(IncomingCall& call, Next next) const {
    names_->add(call);
    return next();
  }
  bool skips(MetadataView) const noexcept { return skip_; }
  void skipped(const SkippedCall& call) const noexcept { names_->add(call); }

 private:
  std::shared_ptr<Names> names_;
  const bool skip_;
};

class RouteNames : public ServerFixture {
 protected:
  void start(bool skip) {
    server = std::make_unique<Server>(options);
    if (!skip) server->use(tracer.server_spans());
    server->use(NamesRoutes(names, skip));
    make_server();
    server->enable(
        add_routes(http().route("GET", "/gone/*", gone_page)).operator_route("GET", "/own/{page}", gone_page));
    start_server();
    without_native();  // Its spans would replace those of the requests.
    metrics = collect_metrics(registry, *server);
  }
  std::string ask(const std::string& line) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes(line + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    return socket.receive_all().substr(9, 3);
  }

  const Tracer tracer{{.ratio = 1}};
  std::shared_ptr<Names> names = std::make_shared<Names>();
  MetricRegistry registry{4000};
  std::shared_ptr<void> metrics;
};

TEST_F(RouteNames, AreThoseOfTheTable) {
  start(false);
  for (const char* const id : {"7", "8", "a%20b"}) EXPECT_EQ(ask("GET /v1/users/" + std::string(id)), "200");
  EXPECT_EQ(ask("HEAD /v1/users/9"), "200");
  EXPECT_EQ(ask("GET /gone/a/b?c=d"), "410");
  EXPECT_EQ(ask("GET /broken"), "500");
  EXPECT_EQ(ask("GET /streamed").substr(0, 3), "200");
  EXPECT_EQ(ask("GET /own/x"), "410");
  EXPECT_EQ(ask("GET /made/up"), "404");
  const auto series = [](std::string_view route, std::string_view code) {
    return "hawser_server_method_calls_total{method=\"" + std::string(route) + "\",code=\"" + std::string(code) +
           "\"} ";
  };
  std::string text;
  EXPECT_TRUE(soon([&] {
    text = registry.render(MetricFormat::prometheus);
    return text.find(series("GET /streamed", "ok")) != std::string::npos;
  }));
  EXPECT_THAT(text, HasSubstr(series("GET /v1/users/{id}", "ok") + "4\n"));
  EXPECT_THAT(text, HasSubstr(series("GET /gone/*", "invalid_argument") + "1\n"));
  EXPECT_THAT(text, HasSubstr(series("GET /broken", "internal") + "1\n"));
  EXPECT_THAT(text, HasSubstr("hawser_server_method_reply_bytes_total{method=\"GET /gone/*\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("hawser_server_call_duration_seconds_count{method=\"GET /broken\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hawser_server_method_calls_in_flight{method=\"GET /streamed\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("users/7")));
  EXPECT_THAT(text, Not(HasSubstr("own")));
  std::vector<std::string> spans;
  for (const Span& span : tracer.latest(1000)) {
    if (span.protocol == "http") spans.push_back(span.method);
  }
  std::ranges::sort(spans);
  EXPECT_THAT(spans, ElementsAre("GET /broken", "GET /gone/*", "GET /own/{page}", "GET /streamed", "GET /v1/users/{id}",
                                 "GET /v1/users/{id}", "GET /v1/users/{id}", "GET /v1/users/{id}"));
  // Rules see what the client has asked for.
  EXPECT_THAT(names->all(), ::testing::Contains("GET /v1/users/7 = GET /v1/users/{id}"));
  EXPECT_THAT(names->all(), ::testing::Contains("GET /own/x = GET /own/{page}"));
}

TEST_F(RouteNames, ReachInterceptorsThatSkipOnce) {
  start(true);
  EXPECT_EQ(ask("GET /broken"), "500");
  EXPECT_TRUE(soon([&] { return !names->all().empty(); }));
  EXPECT_EQ(ask("GET /made/up"), "404");
  EXPECT_THAT(names->all(), ElementsAre("GET /broken = GET /broken"));
}

}  // namespace
}  // namespace hawser::http_test
