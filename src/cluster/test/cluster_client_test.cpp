#include "hawser/cluster_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/test/hand_name.h"
#include "hawser/sync.h"
#include "hawser/testing.h"

namespace hawser::cluster {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::SimServer;
using testing::Simulation;

// The work of the servers of a test. It survives their crashes.
struct Record {
  std::map<std::string, int> calls;      // By server.
  std::map<int, int> executions;         // By call.
  std::map<std::string, bool> overload;  // The server refuses calls.
  int total() const {
    int sum = 0;
    for (const auto& [server, count] : calls) sum += count;
    return sum;
  }
};

struct Service {
  std::string name;
  Record& record;

  // Returns the server's name.
  Result<std::string> execute(int call) {
    ++record.calls[name];
    if (record.overload[name]) return fail(ErrorCode::overloaded, "this server is overloaded");
    ++record.executions[call];
    return name;
  }
  Task<std::string> execute_slowly(Context& context, int call) {
    ++record.calls[name];
    ++record.executions[call];
    co_await context.loop().sleep(milliseconds(20));
    co_return name;
  }
  Task<int> count(int end, Writer<std::string> out) {
    for (int i = 0; i < end; ++i) {
      if (!co_await out.write(name)) co_return -1;
    }
    co_return end;
  }
};

SimServer& serve(Simulation& simulation, const std::string& host, Record& record) {
  return simulation.serve(host + ":1", [host, &record](Server& server) {
    auto service = std::make_unique<Service>(Service{.name = host, .record = record});
    server.register_handler<&Service::execute>(service.get());
    server.register_handler<&Service::execute_slowly>(service.get());
    server.register_handler<&Service::count>(service.get());
    return service;
  });
}

std::vector<std::string> serve_many(Simulation& simulation, int count, Record& record) {
  std::vector<std::string> hosts;
  for (int i = 0; i < count; ++i) {
    hosts.push_back("s" + std::to_string(i));
    serve(simulation, hosts.back(), record);
  }
  return hosts;
}

// A name whose list the test changes.
struct HandList : HandName {
  void set(const std::vector<std::string>& hosts) {
    endpoints.clear();
    for (const std::string& host : hosts) endpoints.push_back({.address = host + ":1"});
    if (sink != nullptr) sink->on_endpoints(endpoints);
  }
};

std::unique_ptr<ClusterClient> make(std::string_view name, ClusterOptions options = {}) {
  auto client = ClusterClient::create(name, std::move(options));
  EXPECT_TRUE(client) << client.error().text;
  return client ? std::move(*client) : nullptr;
}

constexpr const char* three = "list:a:1,b:1,c:1";

struct Three {
  explicit Three(std::uint64_t seed = 1, testing::SimulationOptions options = {}) : simulation(seed, options) {}
  void start() {
    for (const char* const host : {"a", "b", "c"}) servers.push_back(&serve(simulation, host, record));
  }
  template <class Body>
  void run(Body body) {
    simulation.run([](Three& of, Body& with) -> Task<void> {
      of.start();
      co_await with(of);
    }(*this, body));
  }

  Record record;
  Simulation simulation;
  std::vector<SimServer*> servers;
};

TEST(ClusterClient, SpreadsCallsOverTheEndpoints) {
  Three().run([](Three& of) -> Task<void> {
    const auto client = make(three, {.balancing = {.kind = Balancing::round_robin}});
    for (int i = 0; i < 300; ++i) {
      const Result<std::string> who = co_await client->call<&Service::execute>(i);
      EXPECT_TRUE(who) << who.error().text;
    }
    for (const auto& [host, calls] : of.record.calls) EXPECT_NEAR(calls, 100, 5) << host;
    for (const EndpointState& one : client->endpoints()) {
      EXPECT_EQ(one.reach, "ready");
      EXPECT_EQ(one.connections, 1U);
      EXPECT_TRUE(one.latency);
    }
  });
}

TEST(ClusterClient, HasTheSyntaxOfAClient) {
  Three().run([](Three&) -> Task<void> {
    const auto client = make(three);
    const CallOptions options{.timeout = seconds(1)};
    const auto with_options = co_await client->call<&Service::execute>(options, 1);
    EXPECT_TRUE(with_options);
    const auto whole = co_await client->call<&Service::execute>(2).reply();
    EXPECT_TRUE(whole && whole->value().size() == 1);
    std::vector<std::byte> memory(64);
    const auto placed = co_await client->call<&Service::execute>(3).into(memory);
    EXPECT_TRUE(placed);
    auto counting = co_await client->open<&Service::count>(3);
    EXPECT_TRUE(counting);
    if (!counting) co_return;
    int items = 0;
    auto reader = counting->reader();
    for (;;) {
      auto item = co_await reader.next();
      if (!item || !*item) break;
      ++items;
    }
    EXPECT_EQ(items, 3);
  });
}

TEST(ClusterClient, RefusesMistakesWithAReason) {
  Simulation(1).run([]() -> Task<void> {
    for (const char* const name : {"a:1", "list:a", "unknown:x"}) {
      const auto client = ClusterClient::create(name);
      EXPECT_TRUE(!client && client.error().code == ErrorCode::invalid_argument) << name;
    }
    for (const ClusterOptions& options :
         {ClusterOptions{.connecting_max = 0}, ClusterOptions{.balancing = {.choices = 1}},
          ClusterOptions{.balancing = {.load_max = 0.5}}, ClusterOptions{.balancing = {.panic_threshold = 2}},
          ClusterOptions{.balancing = {.ring_points_each = 65'537}}, ClusterOptions{.retry = {.attempts_max = 0}}}) {
      const auto client = ClusterClient::create(three, options);
      EXPECT_TRUE(!client && client.error().text.contains("ClusterOptions::"));
    }
    co_return;
  }());
  EXPECT_FALSE(ClusterClient::create(three)) << "no loop runs here";
}

// ---- Servers that die and return ----

TEST(ClusterClient, ADeadServerIsAvoidedAndReturns) {
  Three().run([](Three& of) -> Task<void> {
    const auto client = make(three, {.seed = 1});
    const auto calls = [&client](int count) -> Task<void> {
      for (int i = 0; i < count; ++i) {
        const Result<std::string> who = co_await client->call<&Service::execute>(i);
        EXPECT_TRUE(who) << who.error().text;
      }
    };
    co_await calls(50);
    of.servers[1]->crash();
    co_await of.simulation.loop().sleep(milliseconds(10));
    of.record.calls.clear();
    co_await calls(100);
    EXPECT_EQ(of.record.calls["b"], 0);
    of.servers[1]->restart();
    co_await of.simulation.loop().sleep(seconds(6));  // The longest pause between attempts to connect is 5 s.
    co_await calls(200);
    EXPECT_GT(of.record.calls["b"], 20);
  });
}

TEST(ClusterClient, RecoversAfterAllServersWereDown) {
  Three().run([](Three& of) -> Task<void> {
    const auto client = make(three);
    EXPECT_TRUE(co_await client->call<&Service::execute>(1));
    for (SimServer* const server : of.servers) server->crash();
    co_await of.simulation.loop().sleep(seconds(1));
    const Result<std::string> refused = co_await client->call<&Service::execute>(2);
    EXPECT_TRUE(!refused && refused.error().code == ErrorCode::unavailable);
    EXPECT_TRUE(!refused && refused.error().text.contains("none of the 3 endpoints")) << refused.error().text;
    EXPECT_LT(of.simulation.elapsed(), seconds(5)) << "a call does not wait for servers that refuse connections";
    for (SimServer* const server : of.servers) server->restart();
    co_await of.simulation.loop().sleep(seconds(6));
    EXPECT_TRUE(co_await client->call<&Service::execute>(3));
  });
}

TEST(ClusterClient, ServersThatStopRefuseNoCall) {
  Three().run([](Three& of) -> Task<void> {
    const auto client = make(three, {.balancing = {.kind = Balancing::round_robin}});
    Scope load;
    int failed = 0;
    bool stop = false;
    for (int worker = 0; worker < 8; ++worker) {
      load.spawn([](ClusterClient& calls, int& failures, bool& ended) -> Task<void> {
        while (!ended) {
          const Result<std::string> who = co_await calls.call<&Service::execute_slowly>(0);
          failures += who ? 0 : 1;
        }
      }(*client, failed, stop));
    }
    for (SimServer* const server : of.servers) {
      co_await of.simulation.loop().sleep(seconds(1));
      co_await server->shut_down(seconds(1));
      co_await of.simulation.loop().sleep(seconds(1));
      server->restart();
      co_await of.simulation.loop().sleep(seconds(6));
    }
    stop = true;
    co_await load.join();
    EXPECT_EQ(failed, 0);
    EXPECT_GT(of.record.total(), 1000);
  });
}

TEST(ClusterClient, ALowerPriorityServesWhileAHigherOneIsDown) {
  Three().run([](Three& of) -> Task<void> {
    const auto client = make("list:a:1,b:1;priority=1");
    const auto who = [&client]() -> Task<std::string> {
      const Result<std::string> name = co_await client->call<&Service::execute>(1);
      co_return name ? *name : name.error().text;
    };
    EXPECT_EQ(co_await who(), "a");
    of.servers[0]->crash();
    co_await of.simulation.loop().sleep(milliseconds(100));
    EXPECT_EQ(co_await who(), "b");
    of.servers[0]->restart();
    co_await of.simulation.loop().sleep(seconds(6));
    static_cast<void>(co_await who());  // Asks for a connection to a.
    co_await of.simulation.loop().sleep(milliseconds(100));
    EXPECT_EQ(co_await who(), "a");
  });
}

// ---- Retries ----

// Random faults while calls run: nothing is executed twice, and a call that succeeds is executed once.
TEST(ClusterClient, NothingIsExecutedTwice) {
  const testing::SeedOptions seeds{
      .name = "cluster_twice", .count = 40, .simulation = {.network = {.refuse = 0.05, .reset = 0.2}}, .failed = [] {
        return ::testing::Test::HasFailure();
      }};
  const auto outcome = testing::for_each_seed(seeds, [](Simulation& simulation) -> Task<void> {
    Record record;
    std::vector<SimServer*> servers;
    for (const char* const host : {"a", "b", "c"}) servers.push_back(&serve(simulation, host, record));
    const auto client = make(three, {.seed = simulation.seed()});
    Scope calls;
    int succeeded = 0;
    int done = 0;
    for (int i = 0; i < 300; ++i) {
      if (simulation.chance(0.02)) {
        SimServer& server = *servers[simulation.below(3)];
        server.running() ? server.crash() : server.restart();
      }
      calls.spawn([](ClusterClient& by, Record& of, int call, int& good, int& ended) -> Task<void> {
        const Result<std::string> who = call % 2 == 0 ? co_await by.call<&Service::execute>(call)
                                                      : co_await by.call<&Service::execute_slowly>(call);
        const int executions = of.executions[call];
        EXPECT_LE(executions, 1) << call;
        if (who) {
          EXPECT_EQ(executions, 1) << call;
        } else if (who.error().not_executed()) {
          EXPECT_EQ(executions, 0) << call << who.error().text;
        }
        good += who ? 1 : 0;
        ++ended;
      }(*client, record, i, succeeded, done));
      co_await simulation.loop().sleep(simulation.between(milliseconds(0), milliseconds(20)));
    }
    co_await calls.join();
    EXPECT_EQ(done, 300);
    EXPECT_GT(succeeded, 100);
  });
  EXPECT_TRUE(outcome.passed()) << outcome.report;
}

TEST(ClusterClient, IdempotentCallsAreMadeAgainElsewhere) {
  Three().run([](Three& of) -> Task<void> {
    const auto client = make("list:a:1,b:1", {.balancing = {.kind = Balancing::pick_first}});
    EXPECT_TRUE(co_await client->call<&Service::execute>(0));
    for (const bool idempotent : {false, true}) {
      Scope crash;
      crash.spawn([](Three& on) -> Task<void> {
        co_await on.simulation.loop().sleep(milliseconds(10));
        on.servers[0]->crash();
      }(of));
      const CallOptions options{.idempotent = idempotent};
      const int call = idempotent ? 2 : 1;
      const Result<std::string> who = co_await client->call<&Service::execute_slowly>(options, call);
      if (idempotent) {
        EXPECT_EQ(who, "b");
        EXPECT_EQ(of.record.executions[call], 2);
      } else {
        EXPECT_TRUE(!who && who.error().code == ErrorCode::outcome_unknown);
        EXPECT_EQ(of.record.executions[call], 1);
      }
      co_await crash.join();
      of.servers[0]->restart();
      co_await of.simulation.loop().sleep(seconds(6));
      EXPECT_TRUE(co_await client->call<&Service::execute>(0));
      co_await of.simulation.loop().sleep(seconds(1));
    }
  });
}

TEST(ClusterClient, AFunctionMakesACallLikeAnyOther) {
  Three().run([](Three& of) -> Task<void> {
    const auto client = make("list:a:1,b:1");
    of.record.overload = {{"a", true}, {"b", true}};
    unsigned attempts = 0;
    const auto use = [&](Client& one, const CallOptions& with) -> Task<Result<std::string>> {
      if (++attempts <= 2) {
        EXPECT_EQ(with.earlier_attempts, attempts - 1);
      }
      if (attempts == 2) of.record.overload.clear();
      co_return co_await one.call<&Service::execute>(with, 7);
    };
    const CallOptions options{.timeout = seconds(3), .idempotent = true};
    EXPECT_TRUE(co_await client->send_request(method_name<&Service::execute>, options, use));
    EXPECT_EQ(attempts, 2U) << "a refused call is made again";
    of.servers[0]->crash();
    EXPECT_EQ(co_await client->send_request(method_name<&Service::execute>, options, use), "b");
    auto counting = co_await client->send_request(
        method_name<&Service::count>, {.timeout = forever},
        [](Client& one, const CallOptions& with) { return one.open<&Service::count>(with, 3); }, false);
    EXPECT_TRUE(counting);
    if (counting) {
      EXPECT_EQ(co_await counting->finish(), 3);
    }
  });
}

TEST(ClusterClient, RetriesOfRefusedCallsKeepTheBudget) {
  Three().run([](Three& of) -> Task<void> {
    for (const char* const host : {"a", "b", "c"}) of.record.overload[host] = true;
    const auto client = make(
        three, {.retry = {.backoff_first = milliseconds(1)}, .retry_budget = std::make_shared<RetryBudget>(20, 0.1)});
    for (int i = 0; i < 500; ++i) {
      const Result<std::string> who = co_await client->call<&Service::execute>(i);
      EXPECT_TRUE(!who && who.error().code == ErrorCode::overloaded);
    }
    EXPECT_LE(of.record.total(), 500 + 10) << "half of the tokens may be spent";
    EXPECT_GT(of.record.total(), 500);
    for (auto& [host, overload] : of.record.overload) overload = false;
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(co_await client->call<&Service::execute>(i));
    EXPECT_GT(client->retry_budget().tokens(), 10);
  });
}

TEST(ClusterClient, AServerThatRefusesCallsIsAvoided) {
  Three().run([](Three& of) -> Task<void> {
    of.record.overload["b"] = true;
    const auto client = make(three, {.retry = {.backoff_first = milliseconds(1)}});
    for (int i = 0; i < 500; ++i) EXPECT_TRUE(co_await client->call<&Service::execute>(i));
    EXPECT_LT(of.record.calls["b"], 25);
  });
}

// ---- Deadlines and cancellation ----

TEST(ClusterClient, AnEndpointThatDoesNotAnswerHoldsNoCallUp) {
  Three().run([](Three& of) -> Task<void> {
    of.simulation.partition("a");
    const auto client = make(three, {.balancing = {.kind = Balancing::pick_first}});
    EXPECT_EQ(co_await client->call<&Service::execute>(1), "b");
    EXPECT_LT(of.simulation.elapsed(), milliseconds(400));
    EXPECT_EQ(co_await client->call<&Service::execute>(2), "b");
    EXPECT_LT(of.simulation.elapsed(), milliseconds(500)) << "later calls do not wait for it";
  });
}

TEST(ClusterClient, TheDeadlineLimitsTheSearchForAnEndpoint) {
  Three().run([](Three& of) -> Task<void> {
    of.simulation.partition("client");
    const auto client = make(three);
    const CallOptions options{.timeout = seconds(2)};
    const Result<std::string> who = co_await client->call<&Service::execute>(options, 1);
    EXPECT_TRUE(!who && who.error().code == ErrorCode::deadline_exceeded);
    EXPECT_EQ(of.simulation.elapsed() / milliseconds(100), 20);
    of.simulation.end_partitions();
    EXPECT_TRUE(co_await client->call<&Service::execute>(2));
  });
}

TEST(ClusterClient, ACallWhoseDeadlineHasPassedIsNotSent) {
  Three().run([](Three& of) -> Task<void> {
    const auto client = make("list:a:1");
    EXPECT_TRUE(co_await client->call<&Service::execute>(0));
    const CallOptions options{.timeout = Duration::zero()};
    for (int i = 0; i < 5; ++i) {
      const Result<std::string> who = co_await client->call<&Service::execute>(options, 1);
      EXPECT_TRUE(!who && who.error().code == ErrorCode::deadline_exceeded);
      EXPECT_TRUE(!who && who.error().text.contains("the call was not sent")) << who.error().text;
    }
    co_await of.simulation.loop().sleep(milliseconds(10));
    EXPECT_EQ(of.record.calls["a"], 1);
    EXPECT_EQ(client->endpoints()[0].breaker_open_for, Duration::zero());
  });
}

TEST(ClusterClient, AStopEndsTheSearchForAnEndpoint) {
  Three().run([](Three& of) -> Task<void> {
    of.simulation.partition("client");
    const auto client = make(three);
    std::stop_source stop;
    Scope stopping;
    stopping.spawn([](Three& on, std::stop_source& source) -> Task<void> {
      co_await on.simulation.loop().sleep(milliseconds(300));
      source.request_stop();
    }(of, stop));
    const CallOptions options{.token = stop.get_token()};
    const Result<std::string> who = co_await client->call<&Service::execute>(options, 1);
    EXPECT_TRUE(!who && who.error().code == ErrorCode::cancelled);
    EXPECT_LT(of.simulation.elapsed(), milliseconds(400));
  });
}

TEST(ClusterClient, CallsWaitForAPlaceOfFullConnections) {
  Three().run([](Three& of) -> Task<void> {
    const auto client = make(three, {.pool = {.client = {.calls_in_flight_max = 2}, .connections_max = 1}});
    std::vector<Task<Result<std::string>>> calls;
    for (int i = 0; i < 60; ++i) calls.push_back(client->call<&Service::execute_slowly>(int(i)));
    for (const auto& who : co_await when_all(std::move(calls))) EXPECT_TRUE(who) << who.error().text;
    EXPECT_EQ(of.record.total(), 60);
  });
}

// waitForReady waits for an endpoint that can be reached. A limit of calls refuses at once.
TEST(ClusterClient, CallsThatWaitForAnEndpointDoNotWaitForItsLimit) {
  Three().run([](Three& of) -> Task<void> {
    auto config = ServiceConfig::parse(R"({"methodConfig": [{"name": [{}], "waitForReady": true}]})");
    EXPECT_TRUE(config);
    const auto client = make("list:a:1", {.balancing = {.endpoint_limit = LimitOptions{.initial = 1, .min = 1}},
                                          .retry = {.attempts_max = 1},
                                          .service_config = *config});
    Scope first;
    first.spawn(
        [](ClusterClient& by) -> Task<void> { EXPECT_TRUE(co_await by.call<&Service::execute_slowly>(1)); }(*client));
    co_await of.simulation.loop().sleep(milliseconds(10));
    const Result<std::string> refused = co_await client->call<&Service::execute_slowly>(2);
    EXPECT_TRUE(!refused && refused.error().code == ErrorCode::overloaded);
    co_await first.join();
  });
}

// ---- Lists that change ----

TEST(ClusterClient, FollowsTheListAndKeepsItThroughAnOutage) {
  Three().run([](Three& of) -> Task<void> {
    HandList list;
    list.set({"a"});
    const auto client = make("hand:x", {.naming = {list.scheme()}});
    EXPECT_EQ(co_await client->call<&Service::execute>(1), "a");
    auto counting = co_await client->open<&Service::count>(2);
    EXPECT_TRUE(counting);
    list.set({"b"});
    EXPECT_EQ(co_await client->call<&Service::execute>(2), "b");
    if (counting) {
      EXPECT_EQ(co_await counting->finish(), 2) << "a stream of an endpoint that left goes on";
    }
    list.sink->on_failure(Error::of_connection(ErrorCode::unavailable, "the registry is down"));
    co_await of.simulation.loop().sleep(seconds(100));
    EXPECT_EQ(co_await client->call<&Service::execute>(3), "b");
    EXPECT_GE(client->naming().age(of.simulation.loop().now()), seconds(100));
    EXPECT_EQ(client->naming().version, 2U);
  });
}

TEST(ClusterClient, CallsWaitForTheFirstListAndFailIfThereIsNone) {
  Three().run([](Three& of) -> Task<void> {
    HandList list;
    const auto client = make("hand:x", {.naming = {list.scheme()}});
    Scope later;
    later.spawn([](Three& on, HandList& to) -> Task<void> {
      co_await on.simulation.loop().sleep(seconds(1));
      to.set({"c"});
    }(of, list));
    EXPECT_EQ(co_await client->call<&Service::execute>(1), "c");
    HandList broken;
    const auto without = make("hand:y", {.naming = {broken.scheme()}});
    broken.sink->on_failure(Error::of_connection(ErrorCode::unavailable, "no answer"));
    const Result<std::string> who = co_await without->call<&Service::execute>(1);
    EXPECT_TRUE(!who && who.error().code == ErrorCode::unavailable);
    EXPECT_TRUE(!who && who.error().text.contains("hand:y: no answer"));
  });
}

TEST(ClusterClient, ACallAfterALongPauseConnectsToFewEndpoints) {
  Record record;
  Simulation simulation(1);
  simulation.run([](Simulation& on, Record& of) -> Task<void> {
    HandList list;
    list.set(serve_many(on, 50, of));
    const auto client = make("hand:x", {.balancing = {.kind = Balancing::round_robin}, .naming = {list.scheme()}});
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(co_await client->call<&Service::execute>(i));
    co_await on.loop().sleep(seconds(60));  // All connections are closed because nobody uses them.
    EXPECT_TRUE(co_await client->call<&Service::execute>(1));
    std::size_t connections = 0;
    for (const EndpointState& one : client->endpoints()) connections += one.connections + (one.reach == "connecting");
    EXPECT_LE(connections, 4U) << "a call asks for one connection each time that it chooses";
  }(simulation, record));
}

// Connections are opened when calls need them, whatever the length of the list.
TEST(ClusterClient, ALongListCausesNoStormOfConnections) {
  Record record;
  Simulation simulation(1);
  simulation.run([](Simulation& on, Record& of) -> Task<void> {
    HandList list;
    std::vector<std::string> hosts = serve_many(on, 200, of);
    const auto connections = [](const ClusterClient& client) {
      std::size_t sum = 0;
      for (const EndpointState& one : client.endpoints()) sum += one.connections;
      return sum;
    };
    list.set(hosts);
    const auto client = make("hand:x", {.naming = {list.scheme()}});
    EXPECT_EQ(connections(*client), 0U);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(co_await client->call<&Service::execute>(i));
    EXPECT_LE(connections(*client), 21U);
    std::ranges::reverse(hosts);
    list.set(hosts);
    EXPECT_GE(connections(*client), 10U) << "endpoints that stay keep their connections";
    for (int i = 0; i < 500; ++i) {
      EXPECT_TRUE(co_await client->call<&Service::execute>(i));
      const auto endpoints = client->endpoints();
      EXPECT_LE(std::ranges::count(endpoints, "connecting", &EndpointState::reach), 200);
    }
    hosts.resize(100);
    list.set(hosts);
    co_await on.loop().sleep(seconds(2));
    EXPECT_LE(connections(*client), 100U);
  }(simulation, record));
}

TEST(ClusterClient, AKeyStaysAtItsEndpoint) {
  for (const Balancing kind : {Balancing::ring_hash, Balancing::maglev}) {
    Three().run([kind](Three&) -> Task<void> {
      const auto client = make(three, {.balancing = {.kind = kind}, .key_metadata = "user"});
      const auto who = [&client](std::string user) -> Task<std::string> {
        const CallOptions options{.metadata = {{"user", std::move(user)}}};
        const Result<std::string> name = co_await client->call<&Service::execute>(options, 1);
        co_return name ? *name : name.error().text;
      };
      // Once every endpoint has its connection, each key goes to its own.
      for (int i = 0; i < 60; ++i) static_cast<void>(co_await who(std::to_string(i)));
      std::map<std::string, int> users;
      for (int i = 0; i < 60; ++i) {
        const std::string first = co_await who(std::to_string(i));
        ++users[first];
        EXPECT_EQ(co_await who(std::to_string(i)), first);
      }
      EXPECT_EQ(users.size(), 3U);
    });
  }
}

}  // namespace
}  // namespace hawser::cluster
