// The page /channels, and metrics of clients, at a server with other loops than the client.
#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "hawser/cluster_client.h"
#include "hawser/hawser.h"
#include "hawser/http_client.h"
#include "hawser/pages.h"
#include "tests/testing.h"

namespace hawser::channels_page_test {
namespace {

using namespace testing_tools;
using ::testing::HasSubstr;
using ::testing::Not;

int twice(int number) { return 2 * number; }

struct Channels : ::testing::Test {
  void start(PagesOptions pages) {
    ServerOptions options;
    options.loop.log = no_log();
    server = std::make_unique<Server>(options);
    server->register_handler<twice>();
    enable_pages(*server, std::move(pages));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  Task<std::string> get(std::string path) {
    HttpClient client(*Loop::current());
    HttpClientRequest request;
    request.url = "http://127.0.0.1" + path;
    request.address = server->address();
    const Result<HttpClientResponse> response = co_await client.send(std::move(request));
    EXPECT_TRUE(response) << error_of(response);
    co_return response ? response->body : std::string();
  }
  // The page, once it contains `what`: a page has no client whose loop answers late.
  Task<std::string> shows(std::string path, std::string what) {
    Loop& loop = *Loop::current();
    std::string page = co_await get(path);
    for (const Time end = loop.after(patience); !page.contains(what) && loop.now() < end;) page = co_await get(path);
    EXPECT_THAT(page, HasSubstr(what)) << path;
    co_return page;
  }
  std::string got(std::string path) { return sync_wait(get(std::move(path))); }

  std::unique_ptr<Server> server;
};

TEST_F(Channels, AClientWithoutAnyEndpointIsAnAlarm) {
  const ClusterMonitor monitor;
  start({.clusters = monitor});
  sync_wait([](Channels& in, const ClusterMonitor& with) -> Task<void> {
    const auto client = ClusterClient::create("file:/nonexistent", {.monitor = with});
    EXPECT_TRUE(client) << error_of(client);
    if (!client) co_return;
    const std::string page = co_await in.shows("/channels?format=html", "does not exist");
    EXPECT_THAT(page, HasSubstr("<td class=\"n\">0</td><td class=\"n alarm\">0</td>")) << "endpoints and ready ones";
  }(*this, monitor));
}

TEST_F(Channels, ThePageShowsClientsOfOtherLoops) {
  const ClusterMonitor monitor;
  start({.clusters = monitor});
  sync_wait([](Channels& in, const ClusterMonitor& with) -> Task<void> {
    const std::string name = "list:" + in.server->address() + ";zone=<b>,127.0.0.1:1;priority=1";
    const auto client = ClusterClient::create(name, {.monitor = with});
    EXPECT_TRUE(client) << error_of(client);
    if (!client) co_return;
    EXPECT_TRUE(co_await (*client)->call<twice>(4));
    const std::string all = co_await in.shows(
        "/channels?format=json", "\"client\":1,\"name\":\"list:" + in.server->address() + ";zone=\\u003cb\\u003e,");
    EXPECT_THAT(all, HasSubstr("\"balancing\":\"p2c\",\"endpoints\":2,\"ready\":1"));
    const std::string one =
        co_await in.shows("/channels?client=1&format=json",
                          "\"address\":\"" + in.server->address() + "\",\"standing\":\"calls\",\"reach\":\"ready\"");
    EXPECT_THAT(one, HasSubstr("\"standing\":\"no call: no connection is needed yet\",\"reach\":\"idle\""));
    const std::string html = co_await in.shows("/channels?client=1&format=html", "&lt;b&gt;");
    EXPECT_THAT(html, Not(HasSubstr("<b>")));
    for (const char* const wrong : {"/channels?client=7", "/channels?client=x", "/channels?client=1&from=99"}) {
      co_await in.shows(wrong, "p2c");
    }
    const std::string metrics = co_await in.get("/metrics");
    EXPECT_THAT(metrics, HasSubstr("grpc_client_attempt_started_total{grpc_method="));
    EXPECT_THAT(metrics, HasSubstr("hawser_server_calls_total"));
  }(*this, monitor));
  EXPECT_THAT(got("/channels"), HasSubstr("0 clients"));
}

TEST_F(Channels, ThePageSaysHowClientsGetThere) {
  start({});
  EXPECT_THAT(got("/channels"), HasSubstr("ClusterOptions::monitor"));
}

}  // namespace
}  // namespace hawser::channels_page_test
