#include "cluster/load_weight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/backend.h"
#include "cluster/balancer.h"
#include "cluster/test/hand_name.h"
#include "hawser/cluster_client.h"
#include "hawser/load_reports.h"
#include "hawser/testing.h"
#include "rpc/port/load_report_message.h"

namespace hawser::cluster {
namespace {

// A server that is asked for its load, and sends nothing beside results.
struct AskedServer {
  int calls = 0;
  int asked = 0;
  Duration interval = {};

  int serve(int call) {
    ++calls;
    return call;
  }
  Task<Result<void>> stream(Context& context, rpc::LoadReportBytes request, Writer<rpc::LoadReportBytes> out) {
    ++asked;
    interval = rpc::read_load_report_request(request.bytes);
    const rpc::LoadReportBytes report{
        rpc::load_report_message({.application_utilization = 0.1 * asked, .calls_per_second = 100})};
    static_cast<void>(co_await out.write(report));
    static_cast<void>(co_await context.loop().sleep(std::chrono::hours(1), context.token()));
    co_return Result<void>();
  }
};

}  // namespace
}  // namespace hawser::cluster

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::cluster::AskedServer::stream> =
    hawser::method_name_override<&hawser::rpc::stream_core_metrics>;

namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Simulation;

constexpr Time first_time = Time(std::chrono::hours(1));

LoadReport load_of(double calls, double part, double errors = 0) {
  return {.application_utilization = part, .calls_per_second = calls, .errors_per_second = errors};
}

// The weight that follows from one report, after the blackout.
std::optional<double> weight_of(const LoadReport& report, const LoadWeightOptions& options = {}) {
  LoadWeight weight;
  weight.observe(report, first_time, options);
  return weight.value(first_time + options.blackout, options);
}

TEST(LoadWeight, IsTheCallsThatAServerCouldServe) {
  EXPECT_EQ(weight_of(load_of(100, 0.5)), 200);
  EXPECT_EQ(weight_of(load_of(100, 2)), 50) << "more than it can serve";
  EXPECT_EQ(weight_of({.cpu_utilization = 0.25, .calls_per_second = 100}), 400);
  EXPECT_EQ(weight_of({.cpu_utilization = 0.25, .application_utilization = 0.5, .calls_per_second = 100}), 200);
  EXPECT_EQ(weight_of(load_of(100, 0.5, 50)), 100) << "half of the calls fail";
  EXPECT_EQ(weight_of(load_of(100, 0.5, 1e300)), 100 / 1.5) << "no more than all calls can fail";
  EXPECT_EQ(weight_of(load_of(100, 0.5, 50), {.error_penalty = 0}), 200);
}

TEST(LoadWeight, IgnoresReportsWithoutCallsOrUtilisation) {
  EXPECT_FALSE(weight_of({}));
  EXPECT_FALSE(weight_of(load_of(0, 0.5)));
  EXPECT_FALSE(weight_of(load_of(100, 0)));
  EXPECT_FALSE(weight_of(load_of(1e308, 1e-308))) << "more than a number can be";
  EXPECT_FALSE(weight_of(load_of(1e-308, 1e308))) << "0";
}

TEST(LoadWeight, CountsFromTheBlackoutToTheExpiry) {
  const LoadWeightOptions options;
  LoadWeight weight;
  weight.observe(load_of(100, 0.5), first_time, options);
  EXPECT_FALSE(weight.value(first_time + options.blackout - Duration(1), options));
  weight.observe(load_of(100, 0.25), first_time + seconds(5), options);
  EXPECT_EQ(weight.value(first_time + options.blackout, options), 400) << "the blackout begins with the first report";
  const Time end = first_time + seconds(5) + options.expiry;
  EXPECT_TRUE(weight.value(end - Duration(1), options));
  EXPECT_FALSE(weight.value(end, options));
  weight.observe(load_of(100, 0.5), end, options);
  EXPECT_FALSE(weight.value(end, options)) << "the blackout begins again";
  EXPECT_TRUE(weight.value(end + options.blackout, options));
  weight.reset();
  EXPECT_FALSE(weight.value(end + options.blackout, options));
}

// The weights of backends whose servers have reported these weights; 0: none.
std::vector<double> weights_by(const std::vector<double>& reported, unsigned listed = 1, int* steps = nullptr) {
  const LoadWeightOptions options;
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<Backend*> pointers;
  for (const double one : reported) {
    backends.push_back(std::make_unique<Backend>());
    backends.back()->endpoint.weight = listed;
    if (one != 0) backends.back()->load.observe(load_of(one, 1), first_time, options);
    pointers.push_back(backends.back().get());
  }
  LoadWeightUpdate update(first_time + options.blackout);
  int count = 1;
  for (; update.work(pointers, options); ++count) {
  }
  if (steps != nullptr) *steps = count;
  std::vector<double> weights;
  for (const auto& one : backends) weights.push_back(one->weight());
  return weights;
}

TEST(LoadWeightUpdate, GivesWeightsInProportionToThoseOfTheList) {
  EXPECT_EQ(weights_by({100, 200, 400}), (std::vector<double>{0.5, 1, 2}));
  EXPECT_EQ(weights_by({100, 200, 400}, 10), (std::vector<double>{5, 10, 20}));
  EXPECT_EQ(weights_by({100, 0, 200, 400, 0}), (std::vector<double>{0.5, 1, 1, 2, 1}))
      << "the median where none is known";
  EXPECT_EQ(weights_by({100, 0, 0}, 7), (std::vector<double>{7, 7, 7})) << "the list, with fewer than two";
}

TEST(LoadWeightUpdate, BoundsWhatAServerClaims) {
  EXPECT_EQ(weights_by({100, 100, 1e300}), (std::vector<double>{1, 1, 10}));
  EXPECT_EQ(weights_by({100, 100, 1e-300}), (std::vector<double>{1, 1, 0.1}));
}

TEST(LoadWeightUpdate, HasSteps) {
  int steps = 0;
  const auto weights = weights_by(std::vector<double>(1000, 50), 1, &steps);
  EXPECT_EQ(weights, std::vector<double>(1000, 1));
  EXPECT_EQ(steps, 8);
}

// The loop has fewer turns within an interval than the update has steps.
TEST(LoadWeightUpdate, EndsAlthoughTheNextOneIsDue) {
  Balancer balancer({.kind = Balancing::weighted_round_robin, .load_weights = LoadWeightOptions{.blackout = {}}}, 1,
                    [] { return std::make_shared<Backend>(); });
  std::vector<Endpoint> list;
  for (int i = 0; i < 1000; ++i) list.push_back({.address = "h" + std::to_string(i) + ":1"});
  balancer.update(list);
  for (const auto& one : balancer.backends()) {
    balancer.set_reach(*one, Reach::ready, first_time);
    balancer.observe_load(*one, load_of(one == balancer.backends().back() ? 200 : 100, 1), first_time);
  }
  for (int i = 1; i <= 3; ++i) {
    balancer.begin_weights(first_time + seconds(i));
    for (int turn = 0; turn < 3; ++turn) balancer.work();
  }
  EXPECT_EQ(balancer.backends().front()->weight(), 1);
  EXPECT_EQ(balancer.backends().back()->weight(), 2);
}

// Servers with different numbers of workers. A call takes a worker for 10 ms. The server reports how busy they are.
struct UnequalServers {
  explicit UnequalServers(Simulation& on) : simulation(on) {}

  void serve(const std::string& host, int workers, std::string lie = {}) {
    simulation.serve(host + ":1", [this, host, workers, lie](Server& server) {
      auto shop = std::make_unique<Shop>(Shop{.host = host, .workers = workers, .of = *this});
      shop->claim = lie;
      shop->reports.emplace(LoadReportOptions{.processor_time = false});
      server.register_handler<&Shop::serve>(shop.get());
      if (lie.empty()) {
        server.use(*shop->reports);
      } else {
        server.use([lie](IncomingCall& call, Next next) -> Task<Result<void>> {
          call.add_reply_metadata(std::string(LoadReports::metadata_name), lie);
          co_return co_await next();
        });
      }
      return shop;
    });
  }

  struct Shop {
    std::string host;
    int workers;
    UnequalServers& of;
    std::string claim = {};
    std::optional<LoadReports> reports = {};

    Task<int> serve(Context& context, int call) {
      ++of.calls[host];
      const double calls_now = reports->report(context.loop().now()).calls_per_second;
      reports->set_application_utilization(calls_now * 0.01 / workers);
      co_await context.loop().sleep(milliseconds(10));
      co_return call;
    }
  };

  // Offers a call each 2 ms for a time, and returns the part of the calls that each host gets.
  Task<std::map<std::string, double>> offer(ClusterClient& client, Duration duration) {
    calls.clear();
    Scope running;
    int count = 0;
    for (const Time end = simulation.loop().after(duration); simulation.loop().now() < end; ++count) {
      running.spawn([](ClusterClient& by, int number) -> Task<void> {
        const auto result = co_await by.call<&Shop::serve>(number);
        EXPECT_TRUE(result) << result.error().text;
      }(client, count));
      co_await simulation.loop().sleep(milliseconds(2));
    }
    co_await running.join();
    std::map<std::string, double> parts;
    for (const auto& [host, one] : calls) parts[host] = static_cast<double>(one) / count;
    co_return parts;
  }

  Simulation& simulation;
  std::map<std::string, int> calls;
};

std::unique_ptr<ClusterClient> make_weighted(std::string_view name) {
  auto client = ClusterClient::create(
      name, {.balancing = {.kind = Balancing::weighted_round_robin, .load_weights = LoadWeightOptions()}, .seed = 1});
  EXPECT_TRUE(client) << client.error().text;
  return client ? std::move(*client) : nullptr;
}

TEST(LoadWeights, ServersGetTheCallsThatTheyCanServe) {
  Simulation simulation(1);
  UnequalServers servers(simulation);
  servers.serve("a", 10);
  servers.serve("b", 10);
  servers.serve("c", 40);
  simulation.run([](UnequalServers& of) -> Task<void> {
    const auto client = make_weighted("list:a:1,b:1,c:1");
    auto parts = co_await of.offer(*client, seconds(5));
    EXPECT_NEAR(parts["c"], 1.0 / 3, 0.01) << "the weights of the list during the blackout";
    EXPECT_FALSE(client->endpoints().front().weight_by_load);
    co_await of.offer(*client, seconds(20));
    parts = co_await of.offer(*client, seconds(10));
    EXPECT_NEAR(parts["c"], 2.0 / 3, 0.02) << "it has two thirds of the workers";
    EXPECT_NEAR(parts["a"], 1.0 / 6, 0.02);
    EXPECT_NEAR(parts["b"], 1.0 / 6, 0.02);
    const auto endpoints = client->endpoints();
    EXPECT_NEAR(endpoints.at(0).weight_by_load.value_or(0), 1, 0.2);
    EXPECT_NEAR(endpoints.at(2).weight_by_load.value_or(0), 4, 0.8);
  }(servers));
}

// As a control plane of xDS does. The connections that exist read no reports, and are replaced without a failed call.
TEST(LoadWeights, TheSourceOfANameMayDemandThem) {
  Simulation simulation(1);
  UnequalServers servers(simulation);
  servers.serve("a", 10);
  servers.serve("b", 10);
  servers.serve("c", 40);
  simulation.run([](UnequalServers& of) -> Task<void> {
    HandName name;
    for (const char* const address : {"a:1", "b:1", "c:1"}) name.endpoints.push_back({.address = address});
    ClusterOptions options{.seed = 1};
    options.naming.push_back(name.scheme());
    const auto made = ClusterClient::create("hand:x", std::move(options));
    EXPECT_TRUE(made);
    if (!made) co_return;
    ClusterClient& client = **made;
    NamingPolicy demanded{.balancing = Balancing::weighted_round_robin};
    name.sink->on_policy(demanded);
    auto parts = co_await of.offer(client, seconds(5));
    EXPECT_NEAR(parts["c"], 1.0 / 3, 0.01);
    demanded.load_weights = LoadWeightOptions{.blackout = seconds(1)};
    name.sink->on_policy(demanded);
    co_await of.offer(client, seconds(20));
    parts = co_await of.offer(client, seconds(10));
    EXPECT_NEAR(parts["c"], 2.0 / 3, 0.02);
    EXPECT_TRUE(client.endpoints().front().weight_by_load);
    demanded.load_weights = LoadWeightOptions{.update = Duration::zero()};
    name.sink->on_policy(demanded);
    co_await of.offer(client, seconds(1));
    EXPECT_FALSE(client.endpoints().front().weight_by_load) << "out of bounds, as if it were absent";
    demanded.load_weights.reset();
    name.sink->on_policy(demanded);
    co_await of.offer(client, seconds(1));
    parts = co_await of.offer(client, seconds(5));
    EXPECT_NEAR(parts["c"], 1.0 / 3, 0.01);
    EXPECT_FALSE(client.endpoints().front().weight_by_load);
  }(servers));
}

TEST(LoadWeights, AServerThatClaimsEverythingGetsABoundedPart) {
  Simulation simulation(1);
  UnequalServers servers(simulation);
  for (const char* const host : {"a", "b", "c", "d"}) servers.serve(host, 10);
  servers.serve("liar", 10, rpc::load_report_message(load_of(1e300, 1e-3)));
  servers.serve("garbage", 10, std::string(2000, '\xFF'));
  simulation.run([](UnequalServers& of) -> Task<void> {
    const auto client = make_weighted("list:a:1,b:1,c:1,d:1,liar:1,garbage:1");
    co_await of.offer(*client, seconds(20));
    const auto parts = co_await of.offer(*client, seconds(10));
    EXPECT_LE(parts.at("liar"), 0.75) << "ten times the median, of which there are five";
    EXPECT_GE(parts.at("liar"), 0.5);
    EXPECT_NEAR(parts.at("garbage"), 1.0 / 15, 0.03) << "the median";
  }(servers));
}

// A policy that demands a weight by load with such intervals.
NamingPolicy asked_each(Duration out_of_band, Duration update = seconds(1)) {
  return {.balancing = Balancing::weighted_round_robin,
          .load_weights = LoadWeightOptions{.blackout = {}, .update = update, .out_of_band = out_of_band}};
}

TEST(LoadWeights, AShorterIntervalOfTheNameCountsAtOnce) {
  Simulation simulation(1);
  AskedServer a;
  AskedServer b;
  for (AskedServer* const one : {&a, &b}) {
    simulation.serve(one == &a ? "a:1" : "b:1", [one](Server& server) {
      server.register_handler<&AskedServer::serve>(one);
      server.register_handler<&AskedServer::stream>(one);
    });
  }
  simulation.run([](Simulation& on, AskedServer& asked) -> Task<void> {
    HandName name;
    name.endpoints = {{.address = "a:1"}, {.address = "b:1"}};
    ClusterOptions options{.seed = 1};
    options.naming.push_back(name.scheme());
    const auto client = ClusterClient::create("hand:x", std::move(options));
    EXPECT_TRUE(client.has_value());
    if (!client) co_return;
    const auto call_for = [&](Duration time) -> Task<void> {
      for (const Time end = on.loop().after(time); on.loop().now() < end;) {
        EXPECT_TRUE(co_await (*client)->call<&AskedServer::serve>(1));
        co_await on.loop().sleep(milliseconds(50));
      }
    };
    name.sink->on_policy(asked_each(std::chrono::hours(1), std::chrono::hours(1)));
    co_await call_for(seconds(10));
    EXPECT_EQ(asked.asked, 1);
    name.sink->on_policy(asked_each(seconds(1), std::chrono::hours(1)));
    co_await call_for(seconds(10));
    EXPECT_GE(asked.asked, 8);
    EXPECT_EQ(asked.interval, seconds(1));
    EXPECT_FALSE((*client)->endpoints().front().weight_by_load) << "weights are made each hour";
    name.sink->on_policy(asked_each(seconds(1), seconds(1)));
    co_await call_for(seconds(3));
    EXPECT_TRUE((*client)->endpoints().front().weight_by_load);
  }(simulation, a));
}

TEST(LoadWeights, TheFirstQuestionsAreSpreadOverTurnsOfTheLoop) {
  static constexpr int servers = 100;
  Simulation simulation(1);
  AskedServer all;
  for (int i = 0; i < servers; ++i) {
    const std::string address = "h" + std::to_string(i) + ":1";
    simulation.serve(address, [&all](Server& server) {
      server.register_handler<&AskedServer::serve>(&all);
      server.register_handler<&AskedServer::stream>(&all);
    });
  }
  simulation.set_network({.delay_min = milliseconds(1), .delay_max = milliseconds(1)});
  simulation.run([](Simulation& on, AskedServer& asked) -> Task<void> {
    HandName name;
    for (int i = 0; i < servers; ++i) name.endpoints.push_back({.address = "h" + std::to_string(i) + ":1"});
    ClusterOptions options{.connecting_max = servers, .seed = 1};
    options.naming.push_back(name.scheme());
    const auto client = ClusterClient::create("hand:x", std::move(options));
    EXPECT_TRUE(client.has_value());
    if (!client) co_return;
    for (int i = 0; i < 3 * servers; ++i) EXPECT_TRUE(co_await (*client)->call<&AskedServer::serve>(i));
    name.sink->on_policy(asked_each(seconds(10)));
    const auto endpoints = (*client)->endpoints();
    const auto ready = std::ranges::count(endpoints, "ready", &EndpointState::reach);
    EXPECT_GT(ready, servers / 2);
    int most = 0;
    for (int before = 0; asked.asked < ready && on.elapsed() < std::chrono::hours(1); before = asked.asked) {
      co_await on.loop().sleep(milliseconds(1));
      most = std::max(most, asked.asked - before);
    }
    EXPECT_EQ(asked.asked, ready);
    EXPECT_LT(most, servers / 2) << "in one millisecond of ten";
  }(simulation, all));
}

// `a` is asked for its load while it gets calls, and `b` does not know the question.
TEST(LoadWeights, AServerIsAskedWhileItGetsCalls) {
  Simulation simulation(1);
  AskedServer a;
  AskedServer b;
  simulation.serve("a:1", [&a](Server& server) {
    server.register_handler<&AskedServer::serve>(&a);
    server.register_handler<&AskedServer::stream>(&a);
  });
  simulation.serve("b:1", [&b](Server& server) { server.register_handler<&AskedServer::serve>(&b); });
  simulation.run([](Simulation& on, AskedServer& first, AskedServer& second) -> Task<void> {
    const auto client = ClusterClient::create(
        "list:a:1,b:1", {.balancing = {.kind = Balancing::weighted_round_robin,
                                       .load_weights = LoadWeightOptions{.out_of_band = seconds(10)}},
                         .seed = 1});
    EXPECT_TRUE(client.has_value());
    if (!client) co_return;
    for (int i = 0; i < 300; ++i) {
      EXPECT_TRUE(co_await (*client)->call<&AskedServer::serve>(i));
      co_await on.loop().sleep(milliseconds(200));
    }
    EXPECT_GE(first.asked, 5) << "a minute, with 8 to 12 s between questions";
    EXPECT_LE(first.asked, 8);
    EXPECT_EQ(first.interval, seconds(10));
    EXPECT_EQ(first.calls + second.calls, 300);
    const int asked = first.asked;
    co_await on.loop().sleep(seconds(60));
    EXPECT_LE(first.asked, asked + 1) << "a minute without calls";
    for (int i = 0; i < 60; ++i) {
      EXPECT_TRUE(co_await (*client)->call<&AskedServer::serve>(i));
      co_await on.loop().sleep(milliseconds(500));
    }
    EXPECT_GE(first.asked, asked + 2);
  }(simulation, a, b));
}

TEST(LoadWeights, RefusesOptionsOutOfRange) {
  Simulation simulation(1);
  simulation.run([](Simulation&) -> Task<void> {
    const auto refusal = [](LoadWeightOptions weights) {
      const auto made = ClusterClient::create("list:a:1", {.balancing = {.load_weights = weights}});
      return made ? std::string() : made.error().text;
    };
    EXPECT_EQ(refusal({}), "");
    EXPECT_NE(refusal({.blackout = seconds(-1)}).find("blackout"), std::string::npos);
    EXPECT_NE(refusal({.expiry = Duration()}).find("expiry"), std::string::npos);
    EXPECT_NE(refusal({.update = milliseconds(99)}).find("update"), std::string::npos);
    EXPECT_NE(refusal({.error_penalty = -1}).find("error_penalty"), std::string::npos);
    EXPECT_NE(refusal({.out_of_band = milliseconds(1)}).find("out_of_band"), std::string::npos);
    EXPECT_NE(refusal({.out_of_band = Duration::max()}).find("out_of_band"), std::string::npos);
    co_return;
  }(simulation));
}

}  // namespace
}  // namespace hawser::cluster
