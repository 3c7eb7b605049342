#include "hawser/naming_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/balancer.h"
#include "cluster/test/hand_name.h"
#include "hawser/cluster_client.h"
#include "hawser/scope.h"
#include "hawser/testing.h"

// The demands of the source of a name take effect on calls, in virtual time.
namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Simulation;

struct PolicyService {
  std::string name;
  std::map<std::string, int>& calls;

  std::string whose() {
    ++calls[name];
    return name;
  }
  Task<std::string> whose_slowly(Context& context) {
    ++calls[name];
    co_await context.loop().sleep(milliseconds(20));
    co_return name;
  }
};

// Four servers, and a name whose policy the test changes.
class PolicyBench {
 public:
  PolicyBench() {
    for (const char* const host : {"a", "b", "c", "d"}) {
      const std::string address = std::string(host) + ":1";
      name.endpoints.push_back({.address = address});
      simulation.serve(address, [this, host](Server& server) {
        auto service = std::make_unique<PolicyService>(PolicyService{.name = host, .calls = calls});
        server.register_handler<&PolicyService::whose>(service.get());
        server.register_handler<&PolicyService::whose_slowly>(service.get());
        return service;
      });
    }
  }
  template <class Body>
  void run(Body body) {
    simulation.run([](PolicyBench& bench, Body of) -> Task<void> {
      ClusterOptions options{.retry = {.attempts_max = 3}, .key_metadata = "program", .seed = 1};
      options.naming.push_back(bench.name.scheme());
      auto client = ClusterClient::create("hand:x", std::move(options));
      EXPECT_TRUE(client);
      if (client) co_await of(bench, **client);
    }(*this, std::move(body)));
  }
  void demand(NamingPolicy next) { name.sink->on_policy(std::move(next)); }

  Simulation simulation{1};
  std::map<std::string, int> calls;  // By server.
  HandName name;
};

// All endpoints have connections behind it.
Task<void> connect_all(PolicyBench& bench, ClusterClient& client) {
  bench.demand({.balancing = Balancing::round_robin});
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(co_await client.call<&PolicyService::whose>());
  bench.calls.clear();
}

TEST(NamingPolicy, TheBalancingChangesWhileCallsRun) {
  PolicyBench().run([](PolicyBench& bench, ClusterClient& client) -> Task<void> {
    co_await connect_all(bench, client);
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(co_await client.call<&PolicyService::whose>());
    EXPECT_EQ(bench.calls, (std::map<std::string, int>{{"a", 10}, {"b", 10}, {"c", 10}, {"d", 10}}));
    bench.calls.clear();
    bench.demand({.balancing = Balancing::pick_first});
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(co_await client.call<&PolicyService::whose>());
    EXPECT_EQ(bench.calls, (std::map<std::string, int>{{"a", 40}}));
    bench.calls.clear();
    bench.name.endpoints[1].weight = 3;
    bench.name.sink->on_endpoints(bench.name.endpoints);
    bench.demand({.balancing = Balancing::weighted_round_robin});
    for (int i = 0; i < 60; ++i) EXPECT_TRUE(co_await client.call<&PolicyService::whose>());
    EXPECT_EQ(bench.calls, (std::map<std::string, int>{{"a", 10}, {"b", 30}, {"c", 10}, {"d", 10}}));
  });
}

TEST(NamingPolicy, KeysAreThoseThatTheNameDemands) {
  PolicyBench().run([](PolicyBench& bench, ClusterClient& client) -> Task<void> {
    co_await connect_all(bench, client);
    const auto who = [&client](std::vector<std::pair<std::string, std::string>> metadata) -> Task<std::string> {
      const CallOptions options{.metadata = std::move(metadata)};
      const Result<std::string> name = co_await client.call<&PolicyService::whose>(options);
      co_return name ? *name : name.error().text;
    };
    bench.demand({.balancing = Balancing::ring_hash, .keys = {{"user", true}, {"session", false}}});
    std::map<std::string, int> used;
    for (int i = 0; i < 40; ++i) {
      const std::string user = std::to_string(i);
      const std::string first = co_await who({{"user", user}, {"program", "1"}});
      ++used[first];
      EXPECT_EQ(co_await who({{"session", "x" + user}, {"user", user}, {"program", "2"}}), first) << "terminal";
    }
    EXPECT_EQ(used.size(), 4U);
    bench.demand({.balancing = Balancing::ring_hash, .keys = {{"user", false}, {"session", false}}});
    int moved = 0;
    for (int i = 0; i < 40; ++i) {
      const std::string user = std::to_string(i);
      const std::string first = co_await who({{"user", user}, {"session", "1"}});
      EXPECT_EQ(co_await who({{"user", user}, {"session", "1"}}), first);
      moved += co_await who({{"user", user}, {"session", "2"}}) == first ? 0 : 1;
    }
    EXPECT_GT(moved, 10) << "both are the key";
    for (int i = 0; i < 40; ++i) {  // The values of one name are joined.
      const std::string part = std::to_string(i);
      EXPECT_EQ(co_await who({{"user", "x"}, {"user", part}}), co_await who({{"user", "x," + part}}));
    }
    used.clear();
    for (int i = 0; i < 40; ++i) ++used[co_await who({{"program", "1"}})];
    EXPECT_EQ(used.size(), 4U) << "without a key, any endpoint";
  });
}

TEST(NamingPolicy, MoreCallsThanItPermitsFailWithoutAnotherAttempt) {
  PolicyBench().run([](PolicyBench& bench, ClusterClient& client) -> Task<void> {
    co_await connect_all(bench, client);
    bench.demand({.balancing = Balancing::round_robin, .calls_max = 3});
    int refused = 0;
    int served = 0;
    Scope scope;
    for (int i = 0; i < 8; ++i) {
      scope.spawn([](ClusterClient& by, int& good, int& bad) -> Task<void> {
        const Result<std::string> name = co_await by.call<&PolicyService::whose_slowly>({.idempotent = true});
        if (!name) {
          EXPECT_EQ(name.error().code, ErrorCode::overloaded);
          EXPECT_TRUE(name.error().text.contains("as many calls are in flight as the source of the name permits"));
        }
        ++(name ? good : bad);
      }(client, served, refused));
    }
    co_await scope.join();
    EXPECT_EQ(served, 3);
    EXPECT_EQ(refused, 5);
    EXPECT_TRUE(co_await client.call<&PolicyService::whose>()) << "the others have ended";
  });
}

TEST(NamingPolicy, NoMoreCallsThanItPermitsBeginAtAFirstConnection) {
  PolicyBench().run([](PolicyBench& bench, ClusterClient& client) -> Task<void> {
    bench.demand({.balancing = Balancing::pick_first, .calls_max = 3});
    int served = 0;
    int refused = 0;
    Scope scope;
    for (int i = 0; i < 8; ++i) {  // No endpoint is connected yet.
      scope.spawn([](ClusterClient& by, int& good, int& bad) -> Task<void> {
        const Result<std::string> name = co_await by.call<&PolicyService::whose_slowly>({.idempotent = true});
        if (!name) {
          EXPECT_EQ(name.error().code, ErrorCode::overloaded) << name.error().text;
        }
        ++(name ? good : bad);
      }(client, served, refused));
    }
    co_await scope.join();
    EXPECT_EQ(served, 3);
    EXPECT_EQ(refused, 5);
  });
}

TEST(NamingPolicy, APartOfTheCallsIsDropped) {
  PolicyBench().run([](PolicyBench& bench, ClusterClient& client) -> Task<void> {
    co_await connect_all(bench, client);
    bench.demand({.balancing = Balancing::round_robin, .dropped_part = 0.25});
    int dropped = 0;
    for (int i = 0; i < 2000; ++i) {
      const Result<std::string> name = co_await client.call<&PolicyService::whose>({.idempotent = true});
      if (!name) {
        EXPECT_TRUE(name.error().text.contains("that a part of the calls is dropped"));
      }
      dropped += name ? 0 : 1;
    }
    EXPECT_GT(dropped, 400);
    EXPECT_LT(dropped, 600);
    int served = 0;
    for (const auto& [name, count] : bench.calls) served += count;
    EXPECT_EQ(served, 2000 - dropped) << "a call that is dropped is not made again";
    bench.demand({.balancing = Balancing::round_robin, .dropped_part = 1});
    EXPECT_FALSE(co_await client.call<&PolicyService::whose>());
    bench.demand({});
    EXPECT_TRUE(co_await client.call<&PolicyService::whose>());
  });
}

// Makes a call before the first list, and returns its result.
std::string result_of_early_call(const NamingPolicy& policy, const std::string& config, CallOptions options = {}) {
  PolicyBench bench;
  const std::vector<Endpoint> list = std::exchange(bench.name.endpoints, {});
  std::string result;
  bench.run([&](PolicyBench& of, ClusterClient& client) -> Task<void> {
    Scope calls;
    calls.spawn([](ClusterClient& to, CallOptions with, std::string& shown) -> Task<void> {
      const Result<std::string> name = co_await to.call<&PolicyService::whose_slowly>(std::move(with));
      shown = name ? "served" : name.error().text;
    }(client, options, result));
    co_await Loop::current()->sleep(milliseconds(50));
    of.demand(policy);
    of.name.sink->on_service_config(config);
    of.name.sink->on_endpoints(list);
    co_await calls.join();
  });
  return result;
}

TEST(NamingPolicy, ACallBeforeTheFirstListMeetsWhatComesWithIt) {
  const std::string no_config = "{}";
  const std::string of_10_ms = R"({"methodConfig": [{"name": [{}], "timeout": "0.010s"}]})";
  EXPECT_EQ(result_of_early_call({}, no_config), "served");
  EXPECT_TRUE(result_of_early_call({.dropped_part = 1}, no_config).contains("that a part of the calls is dropped"));
  EXPECT_TRUE(result_of_early_call({}, of_10_ms).contains("no reply within the call's timeout"));
  EXPECT_EQ(result_of_early_call({}, no_config, {.timeout = milliseconds(90)}), "served");
  EXPECT_NE(result_of_early_call({}, no_config, {.timeout = milliseconds(60)}), "served") << "it waited for 50 ms";
}

// Ten backends, of which one fails each call.
struct OutlierBench {
  explicit OutlierBench(const OutlierOptions& options)
      : balancer({.kind = Balancing::round_robin, .outliers = options, .breaker = {.failures_max = 0}}, 1,
                 [] { return std::make_shared<Backend>(); }) {
    std::vector<Endpoint> list;
    for (int i = 0; i < 10; ++i) list.push_back({.address = "s" + std::to_string(i) + ":1"});
    balancer.update(list);
    for (const auto& backend : balancer.backends()) balancer.set_reach(*backend, Reach::ready, now);
  }
  // The calls of the failing backend in one interval.
  int interval() { return calls_in(2000); }
  // The same of so many calls of all.
  int calls_in(int all) {
    int calls = 0;
    for (int i = 0; i < all; ++i, now += milliseconds(5)) {
      Backend* const backend = balancer.choose(now, 0).ready;
      if (backend == nullptr) continue;
      const bool fails = backend == balancer.backends().front().get();
      calls += fails ? 1 : 0;
      balancer.begin_call(*backend, now);
      balancer.end_call(*backend, fails ? Judgement::failure : Judgement::success, milliseconds(1), now);
    }
    return calls;
  }
  Time now = Time(std::chrono::hours(1));
  Balancer balancer;
};

TEST(NamingPolicy, RulesForOutliersAreEnforcedAsDemanded) {
  const auto calls_behind = [](const OutlierOptions& options) {
    OutlierBench bench(options);
    bench.interval();
    return bench.interval();
  };
  EXPECT_LE(calls_behind({}), 1);
  EXPECT_EQ(calls_behind({.success_rate_enforced = 0, .failure_enforced = 0}), 200);
  EXPECT_LE(calls_behind({.success_rate_enforced = 0}), 1) << "by failures";
  EXPECT_LE(calls_behind({.failure_enforced = 0}), 1) << "by the rate of success";
  EXPECT_EQ(calls_behind({.failure_endpoints_min = 11, .success_rate_enforced = 0}), 200);
  // By chance: in 200 intervals of one outlier.
  int ejected = 0;
  OutlierBench bench({.base_time = milliseconds(1), .success_rate_enforced = 0, .failure_enforced = 0.3});
  for (int i = 0; i < 200; ++i) {
    bench.interval();
    ejected += bench.balancer.ejections(*bench.balancer.backends().front()).enforced[1] == 0 ? 0 : 1;
  }
  EXPECT_GT(ejected, 30);
  EXPECT_LT(ejected, 90);
}

TEST(NamingPolicy, AnOutlierIsEjectedForAtLeastTheBaseTimeHoweverLongThatIs) {
  for (const Duration base : {Duration(seconds(3000)), Duration(std::chrono::hours(24 * 365 * 200))}) {
    OutlierBench bench({.base_time = base, .time_max = seconds(1)});
    bench.balancer.backends().front()->ejections = 9;  // It has been ejected as often.
    bench.interval();
    bench.interval();
    EXPECT_EQ(bench.interval(), 0);
    EXPECT_GT(bench.balancer.backends().front()->ejected_until, bench.now + seconds(1000));
  }
}

TEST(NamingPolicy, OutliersReturnWhenTheRulesEnd) {
  OutlierBench bench({});
  bench.interval();
  EXPECT_LE(bench.interval(), 1);
  EXPECT_EQ(bench.balancer.excluded(), 1U);
  BalancingOptions without = bench.balancer.options();
  without.outliers.enabled = false;
  bench.balancer.set_options(without);
  EXPECT_EQ(bench.balancer.excluded(), 0U);
  EXPECT_EQ(bench.interval(), 200);
}

TEST(NamingPolicy, AChangeCutsNoIntervalShort) {
  OutlierBench bench({});
  int calls = 0;
  for (int i = 0; i < 30; ++i) {  // Each second.
    BalancingOptions other = bench.balancer.options();
    other.outliers.time_max = seconds(100 + i);
    bench.balancer.set_options(other);
    calls = bench.calls_in(200);
  }
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(bench.balancer.excluded(), 1U);
}

TEST(NamingPolicy, RoundRobinKeepsItsPlaceWhenSomethingElseChanges) {
  OutlierBench bench({});
  std::map<const Backend*, int> chosen;
  for (int i = 0; i < 100; ++i) {
    BalancingOptions other = bench.balancer.options();
    other.outliers.time_max = seconds(100 + i);
    bench.balancer.set_options(other);
    ++chosen[bench.balancer.choose(bench.now, 0).ready];
  }
  EXPECT_EQ(chosen.size(), 10U);
  for (const auto& [backend, count] : chosen) EXPECT_EQ(count, 10);
}

// The endpoints of a name, whose policy changes to maglev.
TEST(NamingPolicy, ATableIsMadeInStepsWhileTheChoicesBeforeGoOn) {
  const auto with = [](Balancing kind) {
    auto balancer = std::make_unique<Balancer>(BalancingOptions{.kind = kind, .load_max = 0}, 1,
                                               [] { return std::make_shared<Backend>(); });
    std::vector<Endpoint> list;
    for (int i = 0; i < 1000; ++i) list.push_back({.address = "s" + std::to_string(i) + ":1"});
    balancer->update(list);
    for (const auto& one : balancer->backends()) balancer->set_reach(*one, Reach::ready, Time(seconds(1)));
    return balancer;
  };
  const auto choice = [](Balancer& of, std::uint64_t key) {
    return of.choose(Time(seconds(2)), key).ready->endpoint.address;
  };
  const auto balancer = with(Balancing::pick_first);
  BalancingOptions other = balancer->options();
  other.kind = Balancing::maglev;
  balancer->set_options(other);
  int steps = 0;
  for (; balancer->work(); ++steps) {
    if (steps < 100) {
      ASSERT_EQ(choice(*balancer, static_cast<std::uint64_t>(steps)), "s0:1");
    }
  }
  EXPECT_GT(steps, 100);
  const auto whole = with(Balancing::maglev);
  for (std::uint64_t key = 0; key < 1000; ++key) EXPECT_EQ(choice(*balancer, key), choice(*whole, key));
}

}  // namespace
}  // namespace hawser::cluster
