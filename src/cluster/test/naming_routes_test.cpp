#include "hawser/naming_routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/route_choice.h"
#include "cluster/route_index.h"
#include "hawser/cluster_client.h"
#include "hawser/cluster_monitor.h"
#include "hawser/scope.h"
#include "hawser/testing.h"

// Names with several clusters, in virtual time.
namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Simulation;
using Header = NamingRoutes::Header;
using Kind = Header::Kind;

NamingRoutes::Route route_with(NamingRoutes::Match match) {
  return {.match = std::move(match), .targets = {{.cluster = 0}}};
}

bool matches_call(NamingRoutes::Match match, std::string_view method, const Metadata& metadata = {}) {
  NamingRoutes routes{.clusters = {"c"}};
  routes.routes.push_back(route_with(std::move(match)));
  Random random(1);
  return RouteIndex(routes).find(method, metadata, random) != nullptr;
}

TEST(NamingRoutes, PathsMatchAsAWholeOrByTheirBegin) {
  EXPECT_TRUE(matches_call({}, "a"));
  EXPECT_TRUE(matches_call({.path = "/"}, "shop.Cart/Add"));
  EXPECT_TRUE(matches_call({.path = "/shop.Ca"}, "shop.Cart/Add"));
  EXPECT_FALSE(matches_call({.path = "/shop.ca"}, "shop.Cart/Add"));
  EXPECT_TRUE(matches_call({.path = "/shop.ca", .any_case = true}, "shop.Cart/Add"));
  EXPECT_TRUE(matches_call({.path = "/shop.Cart/Add", .whole = true}, "shop.Cart/Add"));
  EXPECT_FALSE(matches_call({.path = "/shop.Cart/", .whole = true}, "shop.Cart/Add"));
  EXPECT_FALSE(matches_call({.path = "/", .whole = true}, "shop.Cart/Add"));
  EXPECT_TRUE(matches_call({.path = "/shop::cart/add", .whole = true}, "shop::cart::add"));
  EXPECT_TRUE(matches_call({.path = "/served", .whole = true}, "served"));
}

TEST(NamingRoutes, HeadersMatchAsInGrpc) {
  const auto holds = [](Header header, const Metadata& metadata) {
    header.name = "k";
    return matches_call({.headers = {header}}, "a/b", metadata);
  };
  const Metadata abc = {{"k", "abc"}};
  EXPECT_TRUE(holds({.kind = Kind::exact, .text = "abc"}, abc));
  EXPECT_FALSE(holds({.kind = Kind::exact, .text = "ab"}, abc));
  EXPECT_TRUE(holds({.kind = Kind::exact, .text = "abc", .any_case = true}, {{"k", "aBC"}}));
  EXPECT_TRUE(holds({.kind = Kind::exact, .text = "1,2"}, {{"k", "1"}, {"x", "3"}, {"k", "2"}}));
  EXPECT_TRUE(holds({.kind = Kind::prefix, .text = "ab"}, abc));
  EXPECT_TRUE(holds({.kind = Kind::suffix, .text = "bc"}, abc));
  EXPECT_TRUE(holds({.kind = Kind::contains, .text = "b"}, abc));
  EXPECT_FALSE(holds({.kind = Kind::contains, .text = "d"}, abc));
  EXPECT_TRUE(holds({.kind = Kind::contains, .text = "d", .inverted = true}, abc));
  EXPECT_FALSE(holds({.kind = Kind::exact, .text = "d", .inverted = true}, {})) << "a missing value is not compared";
  EXPECT_TRUE(holds({.kind = Kind::present}, abc));
  EXPECT_FALSE(holds({.kind = Kind::present}, {}));
  EXPECT_TRUE(holds({.kind = Kind::absent}, {}));
  EXPECT_FALSE(holds({.kind = Kind::absent}, abc));
  const Header range{.kind = Kind::range, .first = -1, .end = 5};
  for (const char* const in : {"-1", "+4", "0"}) EXPECT_TRUE(holds(range, {{"k", in}})) << in;
  for (const char* const out : {"5", "-2", "4x", "", "99999999999999999999"}) {
    EXPECT_FALSE(holds(range, {{"k", out}})) << out;
  }
  EXPECT_TRUE(holds({.kind = Kind::range, .first = 0, .end = 5, .inverted = true}, {{"k", "x"}}));
  EXPECT_TRUE(
      matches_call({.headers = {{.name = "content-type", .kind = Kind::exact, .text = "application/grpc"}}}, "a"));
  EXPECT_FALSE(matches_call({.headers = {{.name = "x-bin"}}}, "a", {{"x-bin", "1"}}));
  EXPECT_FALSE(matches_call({.headers = {{.name = "k"}, {.name = "l"}}}, "a", abc)) << "all of them";
}

TEST(NamingRoutes, APartOfTheCallsAndWeightsAreByChance) {
  NamingRoutes routes{.clusters = {"blue", "green", "red"}};
  routes.routes.push_back({.match = {.parts_per_million = 250'000}, .targets = {{.cluster = 2}}});
  routes.routes.push_back({.targets = {{.cluster = 0, .weight = 3}, {.cluster = 1, .weight = 1}}});
  const RouteIndex index(routes);
  Random random(7);
  std::map<std::size_t, int> chosen;
  for (int i = 0; i < 16'000; ++i) ++chosen[choose_cluster(*index.find("a/b", {}, random), random)];
  EXPECT_NEAR(chosen[2], 4000, 250);
  EXPECT_NEAR(chosen[0], 9000, 300);
  EXPECT_NEAR(chosen[1], 3000, 250);
  EXPECT_EQ(text_of_routes(routes), "*, 250000 of a million calls, to red; * to blue 75 %, green 25 %");
  routes.routes[0].match.parts_per_million = 0;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(index.find("a/b", {}, random), &routes.routes[1]);
}

struct RoutedService {
  std::string name;
  std::map<std::string, int>& calls;

  Result<std::string> whose() {
    ++calls[name];
    if (name == "red") return fail(ErrorCode::overloaded, "played");
    return name;
  }
  Task<std::string> whose_slowly(Context& context) {
    ++calls[name];
    co_await context.loop().sleep(seconds(5));
    co_return name;
  }
  // Its name once a second.
  Task<int> repeat(Context& context, int times, Writer<std::string> out) {
    for (int i = 0; i < times; ++i) {
      if (!co_await out.write(name)) co_return -1;
      co_await context.loop().sleep(seconds(1));
    }
    co_return times;
  }
};

// The clusters blue, green and red, each with one server of this name, and a name whose routes the test changes.
class RoutesBench {
 public:
  RoutesBench() {
    for (const char* const host : {"blue", "green", "red"}) {
      simulation.serve(std::string(host) + ":1", [this, host](Server& server) {
        auto service = std::make_unique<RoutedService>(RoutedService{.name = host, .calls = calls});
        server.register_handler<&RoutedService::whose>(service.get());
        server.register_handler<&RoutedService::whose_slowly>(service.get());
        server.register_handler<&RoutedService::repeat>(service.get());
        return service;
      });
    }
  }
  template <class Body>
  void run(Body body) {
    simulation.run([](RoutesBench& bench, Body of) -> Task<void> {
      ClusterOptions options{.retry = {.attempts_max = 3}, .monitor = bench.monitor, .seed = 1};
      options.service_config = bench.service_config;
      options.naming.push_back(
          {.name = "hand", .open = [&bench](std::string_view) { return std::make_unique<Main>(bench); }});
      auto client = ClusterClient::create("hand:x", std::move(options));
      EXPECT_TRUE(client);
      if (client) co_await of(bench, *client);
    }(*this, std::move(body)));
  }
  // Calls are served by these clusters, with these weights. The first one is the main cluster.
  using Weights = std::vector<std::pair<std::string, std::uint32_t>>;
  void route(const Weights& weights) {
    NamingRoutes::Route all;
    NamingRoutes routes;
    for (const auto& [name, weight] : weights) {
      all.targets.push_back({.cluster = routes.clusters.size(), .weight = weight});
      routes.clusters.push_back(name);
    }
    routes.routes.push_back(std::move(all));
    route(std::move(routes));
  }
  void route(NamingRoutes routes) {
    routes.open = [this](std::string_view name) { return std::make_unique<Other>(*this, std::string(name)); };
    const std::string main = routes.clusters[routes.main];
    sink->on_routes(std::make_shared<const NamingRoutes>(std::move(routes)));
    sink->on_endpoints(list_of(main));
  }
  // First connections that were opened since the begin.
  int opened() const {
    const std::string text = monitor.metrics().render(MetricFormat::prometheus);
    const std::string_view row = "grpc_subchannel_connection_attempts_succeeded_total{grpc_target=\"hand:x\"} ";
    const std::size_t at = text.find(row);
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + row.size()));
  }
  static std::vector<Endpoint> list_of(const std::string& cluster) { return {{.address = cluster + ":1"}}; }

  Simulation simulation{1};
  ClusterMonitor monitor;
  std::map<std::string, int> calls;             // By server.
  std::optional<ServiceConfig> service_config;  // The client has it.
  NamingSink* sink = nullptr;
  int sources = 0;  // Number of the sources of other clusters.

 private:
  class Main final : public NamingSource {
   public:
    explicit Main(RoutesBench& of) : of_(of) {}
    void start(Loop&, NamingSink& to) override { of_.sink = &to; }

   private:
    RoutesBench& of_;
  };
  class Other final : public NamingSource {
   public:
    Other(RoutesBench& of, std::string name) : of_(of), name_(std::move(name)) { ++of_.sources; }
    ~Other() override { --of_.sources; }
    void start(Loop&, NamingSink& to) override {
      if (name_ == "missing") return to.on_failure(Error::of_call(ErrorCode::unavailable, "there is no such cluster"));
      to.on_endpoints(list_of(name_));
    }

   private:
    RoutesBench& of_;
    std::string name_;
  };
};

using Client = std::unique_ptr<ClusterClient>;

Task<std::string> whose(ClusterClient& client, CallOptions options = {}) {
  const Result<std::string> name = co_await client.call<&RoutedService::whose>(options);
  co_return name ? *name : name.error().text;
}
Task<void> keep_slow(ClusterClient& client, std::vector<std::string>& answers) {
  const Result<std::string> name = co_await client.call<&RoutedService::whose_slowly>();
  answers.push_back(name ? *name : name.error().text);
}

TEST(RoutedClusters, EachCallChoosesAClusterByWeight) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    bench.route({{"blue", 3}, {"green", 1}});
    for (int i = 0; i < 2000; ++i) EXPECT_FALSE((co_await whose(*client)).empty());
    EXPECT_EQ(bench.calls["blue"] + bench.calls["green"], 2000);
    EXPECT_NEAR(bench.calls["green"], 500, 80);
    EXPECT_EQ(client->endpoints().size(), 2U) << "those of both clusters";
    EXPECT_EQ(bench.opened(), 2);
  });
}

// The routes before them stay.
TEST(RoutedClusters, RoutesOfASourceThatAreWrongAreRefused) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    bench.route({{"blue", 1}});
    const NamingRoutes good{.clusters = {"green"}, .routes = {{.targets = {{.cluster = 0, .weight = 1}}}}};
    std::vector<NamingRoutes> wrong(8, good);
    wrong[0].clusters.clear();
    wrong[1].clusters.resize(NamingRoutes::clusters_max + 1);
    wrong[2].main = 1;
    wrong[3].clusters.emplace_back("red");  // Without `open`.
    wrong[4].routes[0].targets[0].cluster = 1;
    wrong[5].routes[0].targets.clear();
    wrong[6].routes[0].targets = {{.cluster = 0, .weight = UINT32_MAX}, {.cluster = 0, .weight = 1}};
    wrong[7].clusters.emplace_back("green");
    wrong[7].open = [](std::string_view) { return nullptr; };
    for (const NamingRoutes& routes : wrong) {
      bench.sink->on_routes(std::make_shared<const NamingRoutes>(routes));
      EXPECT_EQ(co_await whose(*client), "blue");
    }
    bench.route({{"green", 1}});
    EXPECT_EQ(co_await whose(*client), "green");
  });
}

TEST(RoutedClusters, AllAttemptsOfACallAreMadeInItsCluster) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    bench.route({{"blue", 1}, {"red", 1}});
    int failed = 0;
    for (int i = 0; i < 20; ++i) failed += co_await whose(*client) == "blue" ? 0 : 1;
    EXPECT_GT(failed, 0);
    EXPECT_EQ(bench.calls["red"], failed * 3) << "three attempts each";
    EXPECT_EQ(bench.calls["blue"], 20 - failed);
  });
}

TEST(RoutedClusters, CallsInFlightKeepTheirCluster) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    bench.route({{"blue", 1}, {"green", 1}});
    std::vector<std::string> answers;
    Scope scope;
    for (int i = 0; i < 20; ++i) scope.spawn(keep_slow(*client, answers));
    co_await client->call<&RoutedService::whose>({.timeout = seconds(1)});
    bench.route({{"blue", 1}});
    for (int i = 0; i < 20; ++i) EXPECT_EQ(co_await whose(*client), "blue");
    co_await Loop::current()->sleep(seconds(4));
    EXPECT_TRUE(answers.empty());
    EXPECT_EQ(bench.sources, 1) << "green has calls";
    co_await Loop::current()->sleep(seconds(4));
    EXPECT_EQ(std::ranges::count(answers, "blue") + std::ranges::count(answers, "green"), 20);
    EXPECT_GT(std::ranges::count(answers, "green"), 0);
    EXPECT_EQ(bench.sources, 0);
    EXPECT_EQ(client->endpoints().size(), 1U);
  });
}

// A thousand changes within a second: each cluster is connected once.
TEST(RoutedClusters, RoutesThatComeAndGoOpenNoFurtherConnections) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    for (int i = 0; i < 500; ++i) {
      bench.route({{"blue", 1}, {"green", 1'000'000}});
      EXPECT_FALSE((co_await whose(*client)).empty());
      bench.route({{"blue", 1}});
      EXPECT_EQ(co_await whose(*client), "blue");
      co_await Loop::current()->sleep(milliseconds(1));
    }
    EXPECT_GT(bench.calls["green"], 400);
    EXPECT_EQ(bench.opened(), 2);
    EXPECT_LE(bench.sources, 1);
    co_await Loop::current()->sleep(seconds(3));
    EXPECT_EQ(bench.sources, 0);
    bench.route({{"blue", 1}, {"green", 1'000'000}});
    EXPECT_EQ(co_await whose(*client), "green") << "it is opened again";
  });
}

// A source that names other clusters every 0.1 s for a minute.
TEST(RoutedClusters, AFloodOfClustersIsForgotten) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    int most = 0;
    for (int i = 0; i < 600; ++i) {
      bench.route({{"blue", 1}, {"x" + std::to_string(i), 1}, {"y" + std::to_string(i), 1}});
      most = std::max(most, bench.sources);
      co_await Loop::current()->sleep(milliseconds(100));
    }
    EXPECT_LE(most, 2 * 22) << "those of two seconds";
    bench.route({{"blue", 1}});
    EXPECT_EQ(co_await whose(*client), "blue");
    co_await Loop::current()->sleep(seconds(3));
    EXPECT_EQ(bench.sources, 0);
  });
}

TEST(RoutedClusters, AnotherMainClusterServesAtOnce) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    bench.route({{"blue", 1}, {"green", 1}});
    for (int i = 0; i < 20; ++i) EXPECT_FALSE((co_await whose(*client)).empty());
    bench.route({{"green", 1}});
    for (int i = 0; i < 20; ++i) EXPECT_EQ(co_await whose(*client), "green");
    co_await Loop::current()->sleep(seconds(3));
    EXPECT_EQ(bench.sources, 0);
    EXPECT_EQ(co_await whose(*client), "green");
  });
}

TEST(RoutedClusters, RoutesHaveTimeoutsAndConditions) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    NamingRoutes routes{.clusters = {"blue", "green"}};
    routes.routes.push_back({.match = {.headers = {{.name = "canary"}}}, .targets = {{.cluster = 1}}});
    routes.routes.push_back(
        {.match = {.headers = {{.name = "short"}}}, .targets = {{.cluster = 0}}, .config = {.timeout = seconds(1)}});
    routes.routes.push_back({.match = {.headers = {{.name = "plain"}}}, .targets = {{.cluster = 0}}});
    bench.route(std::move(routes));
    EXPECT_EQ(co_await whose(*client, {.metadata = {{"canary", "1"}}}), "green");
    EXPECT_EQ(co_await whose(*client, {.metadata = {{"plain", "1"}}}), "blue");
    EXPECT_EQ(co_await whose(*client), "no route of hand:x matches the call");
    EXPECT_TRUE(bench.monitor.metrics()
                    .render(MetricFormat::prometheus)
                    .contains("grpc_target=\"hand:x\",grpc_status=\"UNAVAILABLE\"} 1\n"))
        << "a call without an attempt is counted";
    const CallOptions brief{.metadata = {{"short", "1"}}};
    const auto late = co_await client->call<&RoutedService::whose_slowly>(brief);
    EXPECT_TRUE(!late && late.error().code == ErrorCode::deadline_exceeded);
  });
}

TEST(RoutedClusters, AClusterWithoutAListFailsItsCalls) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    bench.route({{"blue", 1}, {"missing", 1'000'000}});
    const std::string text = co_await whose(*client);
    EXPECT_TRUE(text.contains("hand:x cluster missing: there is no such cluster")) << text;
  });
}

// All calls have the route, not only those that begin behind it.
NamingRoutes green_alone() {
  return {.clusters = {"blue", "green"}, .main = 0, .routes = {{.targets = {{.cluster = 1}}}}};
}

TEST(RoutedClusters, CallsThatWaitForTheListTakeARoute) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    std::vector<std::string> answers;
    Scope scope;
    for (int i = 0; i < 3; ++i) scope.spawn(keep_slow(*client, answers));
    co_await Loop::current()->sleep(seconds(1));
    bench.route(green_alone());
    co_await scope.join();
    EXPECT_EQ(answers, std::vector<std::string>(3, "green"));
  });
}

// The name has no list, and says why: other calls fail.
TEST(RoutedClusters, CallsThatWaitForReadyEndpointsTakeARoute) {
  RoutesBench waiting;
  waiting.service_config = *ServiceConfig::parse(R"({"methodConfig":[{"name":[{}],"waitForReady":true}]})");
  waiting.run([](RoutesBench& bench, Client& client) -> Task<void> {
    bench.sink->on_failure(Error::of_call(ErrorCode::unavailable, "played"));
    std::vector<std::string> answers;
    Scope scope;
    for (int i = 0; i < 3; ++i) scope.spawn(keep_slow(*client, answers));
    co_await Loop::current()->sleep(seconds(1));
    EXPECT_TRUE(answers.empty());
    bench.route(green_alone());
    co_await scope.join();
    EXPECT_EQ(answers, std::vector<std::string>(3, "green"));
    EXPECT_EQ(bench.calls["blue"], 0);
  });
}

// The timeout of the method counts from the begin of the call, also while the call waits for a list.
TEST(RoutedClusters, TheTimeoutOfTheMethodLimitsTheWaitForAList) {
  RoutesBench waiting;
  waiting.service_config =
      *ServiceConfig::parse(R"({"methodConfig":[{"name":[{}],"waitForReady":true,"timeout":"7s"}]})");
  waiting.run([](RoutesBench& bench, Client& client) -> Task<void> {
    Loop& loop = *Loop::current();
    for (const bool failed : {false, true}) {
      if (failed) bench.sink->on_failure(Error::of_call(ErrorCode::unavailable, "played"));
      const Time begin = loop.now();
      const auto answer = co_await client->call<&RoutedService::whose>(CallOptions{.timeout = seconds(20)});
      EXPECT_TRUE(!answer && answer.error().code == ErrorCode::deadline_exceeded);
      EXPECT_NEAR(std::chrono::duration<double>(loop.now() - begin).count(), 7, 0.01);
    }
    std::vector<std::string> answers;
    Scope scope;
    scope.spawn(keep_slow(*client, answers));  // Takes 5 s.
    co_await loop.sleep(seconds(4));
    bench.route(green_alone());
    co_await scope.join();
    EXPECT_EQ(bench.calls["green"], 1);
    EXPECT_EQ(std::ranges::count(answers, "green"), 0) << "the answer comes after 9 s";
  });
}

// The answers of 20 calls that begin while the name has no list, and says why. The routes arrive behind the first
// attempts.
Task<std::vector<std::string>> answers_before(RoutesBench& bench, ClusterClient& client, NamingRoutes routes) {
  bench.sink->on_failure(Error::of_call(ErrorCode::unavailable, "played"));
  std::vector<std::string> answers;
  Scope scope;
  for (int i = 0; i < 20; ++i) scope.spawn(keep_slow(client, answers));
  co_await Loop::current()->sleep(milliseconds(1));
  bench.route(std::move(routes));
  co_await scope.join();
  co_return answers;
}

TEST(RoutedClusters, CallsThatAreMadeAgainTakeARouteThatHasArrived) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    const std::vector<std::string> answers = co_await answers_before(bench, *client, green_alone());
    EXPECT_GE(std::ranges::count(answers, "green"), 10) << "the pause before the second attempt is by chance";
    EXPECT_EQ(bench.calls["blue"], 0);
  });
}

TEST(RoutedClusters, CallsThatAreMadeAgainFailIfNoRouteHasArrivedForThem) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    NamingRoutes others = green_alone();
    others.routes[0].match.path = "/others/";
    const std::vector<std::string> answers = co_await answers_before(bench, *client, std::move(others));
    EXPECT_GE(std::ranges::count(answers, "no route of hand:x matches the call"), 10);
    EXPECT_TRUE(bench.calls.empty());
  });
}

// The stream outlives the route that led to its cluster.
TEST(RoutedClusters, AStreamIsOpenedInItsClusterAndKeepsIt) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    bench.route(green_alone());
    auto opened = co_await client->open<&RoutedService::repeat>(8);
    EXPECT_TRUE(opened);
    if (!opened) co_return;
    auto reader = opened->reader();
    for (int i = 0; i < 8; ++i) {
      const auto name = co_await reader.next();
      EXPECT_TRUE(name && *name == "green");
      if (i == 2) bench.route({{"blue", 1}});
    }
    EXPECT_EQ(bench.sources, 1) << "the stream has its connection";
    EXPECT_TRUE(co_await opened->finish());
    EXPECT_EQ(co_await whose(*client), "blue");
    co_await Loop::current()->sleep(seconds(4));
    EXPECT_EQ(bench.sources, 0);
  });
}

TEST(RoutedClusters, ADestroyedClientEndsTheCallsOfAllClusters) {
  RoutesBench().run([](RoutesBench& bench, Client& client) -> Task<void> {
    bench.route({{"blue", 1}, {"green", 1}});
    std::vector<std::string> answers;
    Scope scope;
    for (int i = 0; i < 20; ++i) scope.spawn(keep_slow(*client, answers));
    co_await Loop::current()->sleep(seconds(1));
    client.reset();
    EXPECT_EQ(bench.sources, 0);
    co_await Loop::current()->sleep(seconds(1));
    EXPECT_EQ(answers.size(), 20U);
    for (const std::string& one : answers) EXPECT_TRUE(one != "blue" && one != "green") << one;
  });
}

}  // namespace
}  // namespace hawser::cluster
