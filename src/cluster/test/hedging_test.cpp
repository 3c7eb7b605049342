#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hawser/cluster_client.h"
#include "hawser/interceptor.h"
#include "hawser/onward.h"
#include "hawser/testing.h"

// Copies of slow calls, in virtual time.
namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Simulation;

struct HedgedServers {
  std::map<std::string, Duration> takes;    // Time of a call, by server.
  std::map<std::string, Error> refuses;     // The server answers with this error.
  std::map<std::string, int> calls;         // By server.
  std::map<std::string, int> cancelled;     // Calls whose handler was stopped, by server.
  std::map<int, int> executions;            // By call.
  std::map<int, std::string> last_attempt;  // Value of grpc-previous-rpc-attempts, by call.
  std::map<int, int> attempt_values;        // Values of it in one request at most, by call.
};

struct SlowService {
  std::string name;
  HedgedServers& servers;

  Task<Result<std::string>> work(Context& context, int call) {
    ++servers.calls[name];
    servers.last_attempt[call] = context.metadata().find("grpc-previous-rpc-attempts").value_or("");
    int values = 0;
    for (const auto& [key, value] : context.metadata().copy()) values += key == "grpc-previous-rpc-attempts" ? 1 : 0;
    servers.attempt_values[call] = std::max(servers.attempt_values[call], values);
    if (const auto refusal = servers.refuses.find(name); refusal != servers.refuses.end()) {
      co_return fail(refusal->second);
    }
    ++servers.executions[call];
    const auto slept = co_await context.loop().sleep(servers.takes[name], context.token());
    if (!slept) {
      ++servers.cancelled[name];
      co_return fail(slept.error());
    }
    co_return name;
  }
};

// Servers "a", "b" and "c", of which the first one that works gets a call.
struct HedgedTrio {
  explicit HedgedTrio(testing::SimulationOptions options = {}) : simulation(1, options) {}
  template <class Body>
  void run(HedgeOptions hedging, Body body) {
    simulation.run([](HedgedTrio& of, HedgeOptions with, Body& then) -> Task<void> {
      for (const std::string host : {"a", "b", "c"}) {
        of.servers.takes[host] = milliseconds(1);
        of.simulation.serve(host + ":1", [&of, host](Server& server) {
          auto service = std::make_unique<SlowService>(SlowService{.name = host, .servers = of.servers});
          server.register_handler<&SlowService::work>(service.get());
          return service;
        });
      }
      auto client = ClusterClient::create("list:a:1,b:1,c:1",
                                          {.pool = {.client = {.interceptors = of.interceptors}},
                                           .balancing = {.kind = Balancing::pick_first, .outliers = {.enabled = false}},
                                           .retry = {.attempts_max = of.attempts_max, .codes = of.retried},
                                           .hedging = with});
      EXPECT_TRUE(client) << client.error().text;
      if (!client) co_return;
      of.client = std::move(*client);
      co_await of.connect();
      co_await then(of);
      of.client.reset();
    }(*this, hedging, body));
  }
  // Makes all servers ready: copies go only to those.
  Task<void> connect() {
    simulation.partition("a");
    simulation.partition("b");
    EXPECT_TRUE(co_await client->call<&SlowService::work>(-1));
    simulation.end_partitions();
    while (std::ranges::count(client->endpoints(), "ready", &EndpointState::reach) != 3) {
      co_await simulation.loop().sleep(milliseconds(100));
    }
    servers.calls.clear();
  }
  Task<Result<std::string>> call(int number, bool idempotent = true) {
    const CallOptions options{.idempotent = idempotent};
    co_return co_await client->call<&SlowService::work>(options, number);
  }

  std::vector<ErrorCode> retried = RetryPolicy().codes;
  unsigned attempts_max = 1;
  decltype(ClientOptions::interceptors) interceptors;
  HedgedServers servers;
  Simulation simulation;
  std::unique_ptr<ClusterClient> client;
};

constexpr HedgeOptions after_10_ms{.attempts_max = 2, .delay = milliseconds(10), .budget = 1};

TEST(Hedging, TheFirstResultCountsAndTheLoserIsCancelledAtItsServer) {
  HedgedTrio().run(after_10_ms, [](HedgedTrio& of) -> Task<void> {
    of.servers.takes["a"] = seconds(2);
    const Duration began = of.simulation.elapsed();
    EXPECT_EQ(co_await of.call(1), "b");
    EXPECT_LT(of.simulation.elapsed() - began, milliseconds(15));
    EXPECT_EQ(of.servers.last_attempt[1], "1");
    co_await of.simulation.loop().sleep(milliseconds(20));
    EXPECT_EQ(of.servers.cancelled["a"], 1);
    EXPECT_EQ(of.servers.executions[1], 2);
    of.servers.takes["a"] = milliseconds(2);
    EXPECT_EQ(co_await of.call(2), "a");
    EXPECT_EQ(of.servers.executions[2], 1) << "a call that is not slow has no copy";
    for (const EndpointState& one : of.client->endpoints()) EXPECT_EQ(one.calls_in_flight, 0U);
  });
}

TEST(Hedging, CallsThatAreNotMarkedHaveNoCopies) {
  HedgedTrio().run(after_10_ms, [](HedgedTrio& of) -> Task<void> {
    of.servers.takes["a"] = seconds(2);
    EXPECT_EQ(co_await of.call(1, false), "a");
    EXPECT_EQ(of.servers.executions[1], 1);
    std::vector<std::byte> memory(64);
    const CallOptions marked{.idempotent = true};
    const auto placed = co_await of.client->call<&SlowService::work>(marked, 2).into(memory);
    EXPECT_TRUE(placed) << "two copies would write to one memory";
    EXPECT_EQ(of.servers.executions[2], 1);
    const auto whole = co_await of.client->call<&SlowService::work>(marked, 3).reply();
    EXPECT_TRUE(whole && whole->value() == "b");
  });
}

TEST(Hedging, AFailureThatMayBeRetriedSendsTheNextCopyAtOnce) {
  HedgedTrio().run(after_10_ms, [](HedgedTrio& of) -> Task<void> {
    of.servers.refuses.emplace("a", Error::of_call(ErrorCode::overloaded, "busy"));
    const Duration began = of.simulation.elapsed();
    EXPECT_EQ(co_await of.call(1), "b");
    EXPECT_LT(of.simulation.elapsed() - began, milliseconds(5));
    of.servers.refuses.emplace("b", Error::of_call(ErrorCode::overloaded, "busy, too"));
    const auto refused = co_await of.call(2);
    EXPECT_TRUE(!refused && refused.error().code == ErrorCode::overloaded) << refused.error().text;
    EXPECT_EQ(of.servers.executions[2], 0);
    EXPECT_EQ(of.servers.calls["c"], 0) << "attempts_max is 2";
  });
}

TEST(Hedging, AFatalErrorEndsAllCopies) {
  HedgedTrio().run(after_10_ms, [](HedgedTrio& of) -> Task<void> {
    of.servers.takes["a"] = seconds(2);
    of.servers.refuses.emplace("b", Error::application(7, "no such block"));
    const auto failed = co_await of.call(1);
    EXPECT_TRUE(!failed && failed.error().application_code == 7);
    co_await of.simulation.loop().sleep(milliseconds(20));
    EXPECT_EQ(of.servers.cancelled["a"], 1);
  });
}

TEST(Hedging, ARefusalDoesNotHideACopyThatMayHaveBeenExecuted) {
  HedgedTrio trio;
  trio.retried = {};  // A refusal ends the call.
  trio.run(after_10_ms, [](HedgedTrio& of) -> Task<void> {
    of.servers.takes["a"] = seconds(2);
    of.servers.refuses.emplace("b", Error::of_call(ErrorCode::overloaded, "busy"));
    const auto unknown = co_await of.call(1);
    EXPECT_TRUE(!unknown && unknown.error().code == ErrorCode::outcome_unknown);
    EXPECT_EQ(of.servers.executions[1], 1);
  });
}

TEST(Hedging, ARefusedCopyDoesNotEndACallWhoseOtherCopySucceeds) {
  HedgedTrio trio;
  trio.retried = {ErrorCode::overloaded};
  trio.run(after_10_ms, [](HedgedTrio& of) -> Task<void> {
    of.servers.takes["a"] = milliseconds(50);
    of.servers.refuses.emplace("b", Error::of_call(ErrorCode::overloaded, "busy"));
    EXPECT_EQ(co_await of.call(1), "a");
    EXPECT_EQ(of.servers.calls["b"], 1);
  });
}

TEST(Hedging, CopiesThatEndInOneTurnAreOneResult) {
  HedgedTrio trio({.network = {.delay_min = milliseconds(1), .delay_max = milliseconds(1)}});
  trio.run(after_10_ms, [](HedgedTrio& of) -> Task<void> {
    of.servers.takes["a"] = milliseconds(20);
    of.servers.takes["b"] = milliseconds(10);
    EXPECT_TRUE(co_await of.call(1));
    EXPECT_EQ(of.servers.executions[1], 2);
    for (const EndpointState& one : of.client->endpoints()) EXPECT_EQ(one.calls_in_flight, 0U);
  });
}

TEST(Hedging, AServerThatForbidsAnotherAttemptGetsNoFurtherCopy) {
  HedgedTrio trio;
  trio.interceptors.push_back(client_interceptor([](OutgoingCall&, Next next) -> Task<Result<void>> {
    Result<void> result = co_await next();
    if (!result) result.error().retry_after = -seconds(1);
    co_return result;
  }));
  trio.run({.attempts_max = 3, .delay = milliseconds(10), .budget = 1}, [](HedgedTrio& of) -> Task<void> {
    of.servers.refuses.emplace("a", Error::of_call(ErrorCode::overloaded, "busy"));
    const auto refused = co_await of.call(1);
    EXPECT_TRUE(!refused && refused.error().code == ErrorCode::overloaded);
    EXPECT_EQ(of.servers.calls["b"], 0);
    of.servers.refuses.clear();
    of.servers.refuses.emplace("b", Error::of_call(ErrorCode::overloaded, "busy"));
    of.servers.takes["a"] = milliseconds(50);
    EXPECT_EQ(co_await of.call(2), "a") << "the copies in flight go on";
    EXPECT_EQ(of.servers.calls["b"], 1);
    EXPECT_EQ(of.servers.calls["c"], 0);
  });
}

TEST(Hedging, CopiesOfARetriedCallSayTheirNumberOnce) {
  HedgedTrio trio;
  trio.attempts_max = 2;
  trio.run(after_10_ms, [](HedgedTrio& of) -> Task<void> {
    for (const char* const host : {"a", "b"}) {
      of.servers.refuses.emplace(host, Error::of_call(ErrorCode::overloaded, "busy"));
    }
    EXPECT_FALSE(co_await of.call(1));
    EXPECT_EQ(of.servers.calls["a"] + of.servers.calls["b"], 4);
    EXPECT_EQ(of.servers.attempt_values[1], 1);
    EXPECT_EQ(of.servers.last_attempt[1], "2") << "one attempt and one copy were made before";
  });
}

// The breaker of a is open, and one call tries it. An older call at a that ends now does not permit another trial.
TEST(Hedging, AnOlderCallThatIsDroppedPermitsNoSecondTrial) {
  HedgedTrio().run({}, [](HedgedTrio& of) -> Task<void> {
    of.servers.takes["a"] = seconds(100);
    const auto call = [](HedgedTrio& on, int number) -> Task<void> { static_cast<void>(co_await on.call(number)); };
    Scope old;
    old.spawn(call(of, 1));
    const CallOptions brief{.timeout = milliseconds(5)};
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(co_await of.client->call<&SlowService::work>(brief, 2));
    EXPECT_EQ(co_await of.call(3), "b") << "the breaker is open";
    co_await of.simulation.loop().sleep(seconds(1));
    Scope trial;
    trial.spawn(call(of, 4));
    co_await of.simulation.loop().sleep(milliseconds(10));
    EXPECT_EQ(of.servers.calls["a"], 7);
    old.clear();
    EXPECT_EQ(co_await of.call(5), "b") << "one call at a time tries the endpoint";
  });
}

TEST(Hedging, TheBudgetLimitsTheCopiesWhenAllServersAreSlow) {
  HedgedTrio().run({.attempts_max = 3, .delay = milliseconds(10), .budget = 0.1}, [](HedgedTrio& of) -> Task<void> {
    for (auto& [host, takes] : of.servers.takes) takes = milliseconds(100);
    for (int i = 0; i < 300; ++i) EXPECT_TRUE(co_await of.call(i));
    int copies = -300;
    for (const auto& [host, calls] : of.servers.calls) copies += calls;
    EXPECT_LE(copies, 30);
    EXPECT_GE(copies, 20);
  });
}

TEST(Hedging, TheDelayIsThePercentileOfTheMethod) {
  HedgedTrio().run({.attempts_max = 2, .percentile = 0.9}, [](HedgedTrio& of) -> Task<void> {
    of.servers.takes["a"] = milliseconds(40);
    for (int i = 0; i < 150; ++i) EXPECT_EQ(co_await of.call(i), "a") << "no copies before the time is known";
    of.servers.takes["a"] = seconds(2);
    const Duration began = of.simulation.elapsed();
    EXPECT_EQ(co_await of.call(1000), "b");
    const Duration took = of.simulation.elapsed() - began;
    EXPECT_GT(took, milliseconds(38));
    EXPECT_LT(took, milliseconds(50));
  });
}

TEST(Hedging, ACallerThatCancelsEndsAllCopies) {
  HedgedTrio().run(after_10_ms, [](HedgedTrio& of) -> Task<void> {
    of.servers.takes["a"] = of.servers.takes["b"] = seconds(2);
    std::stop_source stop;
    Scope stopping;
    stopping.spawn([](Loop& loop, std::stop_source source) -> Task<void> {
      co_await loop.sleep(milliseconds(50));
      source.request_stop();
    }(of.simulation.loop(), stop));
    const CallOptions options{.token = stop.get_token(), .idempotent = true};
    const auto who = co_await of.client->call<&SlowService::work>(options, 1);
    EXPECT_TRUE(!who && who.error().code == ErrorCode::cancelled);
    co_await of.simulation.loop().sleep(milliseconds(20));
    EXPECT_EQ(of.servers.cancelled["a"] + of.servers.cancelled["b"], 2);
    const CallOptions brief{.timeout = milliseconds(100), .idempotent = true};
    const auto late = co_await of.client->call<&SlowService::work>(brief, 2);
    EXPECT_TRUE(!late && late.error().code == ErrorCode::deadline_exceeded);
  });
}

// Faults at random: marked calls are executed at most as often as they have copies and attempts, the others once.
TEST(Hedging, ErrorsAreTrueOfAllCopies) {
  const testing::SeedOptions seeds{
      .name = "hedging", .count = 20, .simulation = {.network = {.refuse = 0.05, .reset = 0.2}}, .failed = [] {
        return ::testing::Test::HasFailure();
      }};
  const auto outcome = testing::for_each_seed(seeds, [](Simulation& simulation) -> Task<void> {
    HedgedServers servers;
    std::vector<testing::SimServer*> hosts;
    for (const std::string host : {"a", "b", "c"}) {
      hosts.push_back(&simulation.serve(host + ":1", [&servers, host](Server& server) {
        auto service = std::make_unique<SlowService>(SlowService{.name = host, .servers = servers});
        server.register_handler<&SlowService::work>(service.get());
        return service;
      }));
    }
    const auto client = ClusterClient::create(
        "list:a:1,b:1,c:1", {.hedging = {.attempts_max = 3, .delay = milliseconds(5), .budget = 1}, .seed = 7});
    Scope calls;
    for (int i = 0; i < 200; ++i) {
      if (simulation.chance(0.05)) {
        testing::SimServer& server = *hosts[simulation.below(3)];
        server.running() ? server.crash() : server.restart();
      }
      servers.takes["a"] = simulation.between(milliseconds(0), milliseconds(40));
      calls.spawn([](ClusterClient& by, HedgedServers& of, int call) -> Task<void> {
        const bool marked = call % 2 == 0;
        const CallOptions options{.idempotent = marked};
        const auto who = co_await by.call<&SlowService::work>(options, call);
        EXPECT_LE(of.executions[call], marked ? 9 : 1) << call;
        if (who) {
          EXPECT_GE(of.executions[call], 1) << call;
        } else if (who.error().not_executed()) {
          EXPECT_EQ(of.executions[call], 0) << call << who.error().text;
        }
      }(**client, servers, i));
      co_await simulation.loop().sleep(simulation.between(milliseconds(0), milliseconds(10)));
    }
    co_await calls.join();
  });
  EXPECT_TRUE(outcome.passed()) << outcome.report;
}

// ---- Deadlines over several servers ----

struct Relay {
  ClusterClient*& next;
  std::optional<Duration> time_left = {};

  Task<Result<std::string>> pass_on(Context& context, int call) {
    time_left = *context.deadline() - context.loop().now();
    co_await context.loop().sleep(milliseconds(30));
    co_return co_await next->call<&SlowService::work>(onward(context), call);
  }
};

TEST(Onward, DeadlinesShrinkAndCancellationsSpread) {
  HedgedTrio().run({}, [](HedgedTrio& of) -> Task<void> {
    ClusterClient* to = of.client.get();
    Relay* relay = nullptr;
    of.simulation.serve("relay:1", [&](Server& server) {
      auto service = std::make_unique<Relay>(Relay{.next = to});
      relay = service.get();
      server.register_handler<&Relay::pass_on>(service.get());
      return service;
    });
    const auto front = ClusterClient::create("list:relay:1");
    of.servers.takes["a"] = seconds(2);
    const CallOptions options{.timeout = milliseconds(100)};
    const Duration began = of.simulation.elapsed();
    const auto late = co_await (*front)->call<&Relay::pass_on>(options, 1);
    EXPECT_TRUE(!late && late.error().code == ErrorCode::deadline_exceeded);
    EXPECT_LE(*relay->time_left, milliseconds(100));
    co_await of.simulation.loop().sleep(milliseconds(20));
    EXPECT_EQ(of.servers.cancelled["a"], 1);
    EXPECT_LT(of.simulation.elapsed() - began, milliseconds(200));
  });
}

}  // namespace
}  // namespace hawser::cluster
