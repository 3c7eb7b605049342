#include "hawser/testing/simulation.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace hawser::testing {

bool on_the_loop() { return Loop::current() != nullptr; }

namespace simulation_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Counts in memory that a crash loses, and in memory that it does not lose.
struct Counter {
  int* durable = nullptr;
  int volatile_count = 0;
  int count() {
    ++*durable;
    return ++volatile_count;
  }
};

Task<int> slow_count(Context& context, int value) {
  co_await context.loop().sleep(seconds(2));
  co_return value;
}

Task<int> answer_after_an_hour(Context& context) {
  co_await context.loop().sleep(std::chrono::hours(1));
  co_return 0;
}

auto serve_counter(int& durable) {
  return [&durable](Server& server) {
    auto counter = std::make_unique<Counter>(Counter{.durable = &durable});
    server.register_handler<&Counter::count>(counter.get());
    server.register_handler<slow_count, answer_after_an_hour>();
    server.register_handler<on_the_loop>({.offload = true});
    return counter;
  };
}

Task<Result<int>> count(Client& client, Duration timeout = seconds(30)) {
  const CallOptions options{.timeout = timeout};
  co_return co_await client.call<&Counter::count>(options);
}

Task<bool> connect(Client& client, std::string address) {
  const Result<void> connected = co_await client.connect(std::move(address));
  co_return connected.has_value();
}

// A simulation with one server and one client, on which bodies of tests run.
struct Bench {
  explicit Bench(std::uint64_t seed = 1) : simulation(seed) {}
  Simulation simulation;
  int durable = 0;
};

TEST(Simulation, ClientsThatNameNoNetworkUseTheSimulatedOne) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    of.simulation.serve("counter:1", serve_counter(of.durable));
    Client client;
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    const Result<int> reply = co_await count(client);
    EXPECT_EQ(reply, 1);
    const std::shared_ptr<ClientPool> pool = ClientPool::create("counter:1");
    const Result<int> second = co_await pool->call<&Counter::count>();
    EXPECT_EQ(second, 2);
  }(bench));
  EXPECT_GT(bench.simulation.elapsed(), Duration::zero());
  EXPECT_LT(bench.simulation.elapsed(), milliseconds(100));
}

TEST(Simulation, TheSameSeedGivesTheSameEvents) {
  const auto trace = [](std::uint64_t seed) {
    Bench bench(seed);
    bench.simulation.run([](Bench& of) -> Task<void> {
      of.simulation.serve("counter:1", serve_counter(of.durable));
      Client client;
      EXPECT_TRUE(co_await connect(client, "counter:1"));
      for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(co_await count(client));
      }
    }(bench));
    return bench.simulation.trace();
  };
  EXPECT_EQ(trace(5), trace(5));
  EXPECT_NE(trace(5), trace(6));
}

TEST(Simulation, ACrashLosesTheStateOfTheServerAlone) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    SimServer& server = of.simulation.serve("counter:1", serve_counter(of.durable));
    Client client;
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    EXPECT_TRUE(co_await count(client));
    server.crash();
    EXPECT_FALSE(server.running());
    EXPECT_THROW(server.server(), std::logic_error);
    const Result<int> lost = co_await count(client);
    EXPECT_FALSE(lost);
    EXPECT_FALSE(co_await connect(client, "counter:1")) << "a process that does not run accepts no connections";
    server.restart();
    EXPECT_THROW(server.restart(), std::logic_error);
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    EXPECT_EQ(co_await count(client), 1);
    EXPECT_EQ(of.durable, 2);
  }(bench));
}

TEST(Simulation, ACrashEndsHandlersThatWait) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    SimServer& server = of.simulation.serve("counter:1", serve_counter(of.durable));
    Client client;
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    auto pending = co_await client.send_request<slow_count>(7);
    EXPECT_TRUE(pending);
    co_await of.simulation.loop().sleep(seconds(1));
    server.crash();
    auto reply = co_await std::move(*pending);
    EXPECT_FALSE(reply);
    EXPECT_TRUE(!reply && reply.error().code == ErrorCode::outcome_unknown);
    EXPECT_LT(of.simulation.elapsed(), milliseconds(1100)) << "the client learns of the end of the process at once";
  }(bench));
}

// Makes a call that begins after `delay`, and expects that its timeout ends it, not later than the timer's precision.
Task<void> expect_timeout(Simulation& simulation, Client& client, Duration delay, CallOptions options,
                          Duration timeout) {
  co_await simulation.loop().sleep(delay);
  const Duration begin = simulation.elapsed();
  const Result<int> reply = co_await client.call<answer_after_an_hour>(options);
  EXPECT_TRUE(!reply && reply.error().code == ErrorCode::deadline_exceeded);
  EXPECT_GE(simulation.elapsed() - begin, timeout);
  EXPECT_LE(simulation.elapsed() - begin, timeout + std::chrono::microseconds(10));
}

TEST(Simulation, EachCallEndsAtItsOwnDeadline) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    static_cast<void>(of.simulation.serve("counter:1", serve_counter(of.durable)));
    Client client({.call_timeout = seconds(10)});
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    const auto expect = [&](Duration delay, CallOptions options, Duration timeout) {
      return expect_timeout(of.simulation, client, delay, std::move(options), timeout);
    };
    Scope calls;
    // The timeout of the client: one after another, two at once, and one after a pause in which all others end.
    for (const auto delay : {seconds(0), seconds(1), seconds(3), seconds(3), seconds(60)}) {
      calls.spawn(expect(delay, {}, seconds(10)));
    }
    // Other timeouts, and the same one again.
    calls.spawn(expect(seconds(2), {.timeout = seconds(1)}, seconds(1)));
    calls.spawn(expect(seconds(2), {.timeout = seconds(20)}, seconds(20)));
    calls.spawn(expect(seconds(2), {.timeout = seconds(10)}, seconds(10)));
    // Calls that are dropped: near the front, in the middle and at the end of those that wait.
    for (const auto delay : {seconds(0), seconds(2), seconds(4)}) {
      calls.spawn([](Bench& with, Client& dropping, Duration wait) -> Task<void> {
        co_await with.simulation.loop().sleep(wait);
        const auto dropped = co_await dropping.send_request<answer_after_an_hour>();
        EXPECT_TRUE(dropped);
        co_await with.simulation.loop().sleep(seconds(2));
      }(of, client, delay));
    }
    co_await calls.join();
  }(bench));
}

TEST(Simulation, AMachineThatCrashesIsSilentUntilItRestarts) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    SimServer& server = of.simulation.serve("counter:1", serve_counter(of.durable));
    SimServer& neighbour = of.simulation.serve("counter:2", serve_counter(of.durable));
    Client client;
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    server.crash(Crash::machine);
    EXPECT_FALSE(neighbour.running()) << "it was on the same host";
    const Result<int> lost = co_await count(client, seconds(1));
    EXPECT_TRUE(!lost && lost.error().code == ErrorCode::deadline_exceeded);
    Client other({.connect_timeout = seconds(3)});
    const Duration begin = of.simulation.elapsed();
    EXPECT_FALSE(co_await connect(other, "counter:1"));
    EXPECT_GE(of.simulation.elapsed() - begin, seconds(3)) << "nobody refuses the connection";
    server.restart();
    co_await of.simulation.loop().sleep(milliseconds(10));
    EXPECT_FALSE(client.connected()) << "the host does not know connections of its earlier life";
    EXPECT_TRUE(co_await connect(client, "counter:1"));
  }(bench));
}

TEST(Simulation, AConnectionSurvivesAPartitionAndLosesNothing) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    of.simulation.serve("counter:1", serve_counter(of.durable));
    Client client;
    Client elsewhere({.runtime = of.simulation.host("elsewhere")});
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    EXPECT_TRUE(co_await connect(elsewhere, "counter:1"));
    of.simulation.partition("client", "counter");
    const CallOptions patient{.timeout = seconds(20)};
    auto pending = co_await client.send_request<&Counter::count>(patient);
    EXPECT_TRUE(pending);
    co_await of.simulation.loop().sleep(seconds(5));
    EXPECT_EQ(of.durable, 0) << "a request crossed the partition";
    EXPECT_TRUE(co_await count(elsewhere)) << "another host is not separated";
    of.simulation.end_partition("client", "counter");
    auto reply = co_await std::move(*pending);
    EXPECT_EQ(reply, 2);
    EXPECT_TRUE(client.connected());
    of.simulation.partition("counter");
    Client impatient({.connect_timeout = seconds(2)});
    EXPECT_FALSE(co_await connect(impatient, "counter:1"));
    // An attempt that began before the end of the partition is repeated.
    Scope ending;
    ending.spawn([](Simulation& simulation) -> Task<void> {
      co_await simulation.loop().sleep(milliseconds(1500));
      simulation.end_partitions();
    }(of.simulation));
    Client late({.connect_timeout = seconds(10)});
    const Duration begin = of.simulation.elapsed();
    EXPECT_TRUE(co_await connect(late, "counter:1"));
    EXPECT_LT(of.simulation.elapsed() - begin, seconds(3));
  }(bench));
}

TEST(Simulation, APartitionOfOneDirectionStopsRequestsOrReplies) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    of.simulation.serve("counter:1", serve_counter(of.durable));
    Client client;
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    of.simulation.partition_one_way("counter", "client");
    const CallOptions patient{.timeout = seconds(20)};
    bool answered = false;
    Scope calls;
    calls.spawn([](Client& by, CallOptions options, bool& done) -> Task<void> {
      EXPECT_EQ(co_await by.call<&Counter::count>(options), 1);
      done = true;
    }(client, patient, answered));
    co_await of.simulation.loop().sleep(seconds(1));
    EXPECT_EQ(of.durable, 1) << "the request arrives and is executed";
    EXPECT_FALSE(answered) << "its reply crossed the partition";
    Client impatient({.connect_timeout = seconds(2)});
    EXPECT_FALSE(co_await connect(impatient, "counter:1")) << "a handshake needs both directions";
    of.simulation.end_partition("client", "counter");
    co_await calls.join();

    of.simulation.partition_one_way("", "counter");
    auto unsent = co_await client.send_request<&Counter::count>(patient);
    EXPECT_TRUE(unsent);
    co_await of.simulation.loop().sleep(seconds(1));
    EXPECT_EQ(of.durable, 1) << "a request crossed the partition";
    of.simulation.end_partitions();
    EXPECT_EQ(co_await std::move(*unsent), 2);
    EXPECT_TRUE(client.connected()) << "the connection lived through both";
  }(bench));
}

// A reset answers bytes for a process that is gone, if they arrive.
TEST(Simulation, NothingAnswersBytesThatAPartitionOfOneDirectionHolds) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    SimServer& server = of.simulation.serve("counter:1", serve_counter(of.durable));
    Client client;
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    of.simulation.partition("client", "counter");
    server.crash();
    of.simulation.end_partitions();
    of.simulation.partition_one_way("client", "counter");
    auto unanswered = co_await client.send_request<&Counter::count>({.timeout = seconds(20)});
    EXPECT_TRUE(unanswered);
    co_await of.simulation.loop().sleep(seconds(1));
    of.simulation.end_partitions();
    EXPECT_FALSE(co_await std::move(*unanswered));
    co_await of.simulation.loop().sleep(seconds(1));
    EXPECT_FALSE(client.connected());
  }(bench));
}

TEST(Simulation, APartitionOfAllHostsSeparatesEachFromEachOther) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    of.simulation.serve("counter:1", serve_counter(of.durable));
    Client client;
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    of.simulation.partition_one_way("", "");
    EXPECT_FALSE(co_await client.call<&Counter::count>({.timeout = seconds(1)}));
    EXPECT_EQ(of.durable, 0);
    of.simulation.end_partitions();
    EXPECT_TRUE(co_await client.call<&Counter::count>({.timeout = seconds(5)}));
  }(bench));
}

TEST(Simulation, ACrashBehindAPartitionIsNoticedWhenThePartitionEnds) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    SimServer& server = of.simulation.serve("counter:1", serve_counter(of.durable));
    Client client;
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    of.simulation.partition("counter");
    server.crash();
    co_await of.simulation.loop().sleep(seconds(1));
    EXPECT_TRUE(client.connected());
    of.simulation.end_partition("counter");
    co_await of.simulation.loop().sleep(milliseconds(10));
    EXPECT_FALSE(client.connected());
  }(bench));
}

TEST(Simulation, OffloadedHandlersRunOnItsThread) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    of.simulation.serve("counter:1", serve_counter(of.durable));
    Client client;
    EXPECT_TRUE(co_await connect(client, "counter:1"));
    const Result<bool> there = co_await client.call<on_the_loop>();
    EXPECT_EQ(there, true);
  }(bench));
}

TEST(Simulation, ABodyThatCannotEndFails) {
  const auto text_of = [](SimulationOptions options, auto body) -> std::string {
    Simulation simulation(1, options);
    try {
      simulation.run(body(simulation));
    } catch (const RunFailed& failure) {
      return failure.what();
    }
    return "no failure";
  };
  const auto stuck = [](Simulation&) -> Task<void> { co_await std::suspend_always(); };
  EXPECT_TRUE(text_of({}, stuck).contains("stuck at")) << text_of({}, stuck);
  const auto endless = [](Simulation& simulation) -> Task<void> {
    for (;;) {
      co_await simulation.loop().sleep(seconds(10));
    }
  };
  EXPECT_TRUE(text_of({.time_max = seconds(60)}, endless).contains("time_max"));
  const auto spinning = [](Simulation& simulation) -> Task<void> {
    for (;;) {
      co_await simulation.loop().sleep(Duration::zero());
    }
  };
  EXPECT_TRUE(text_of({.turns_max = 1000}, spinning).contains("turns_max"));
}

TEST(Simulation, AnotherLoopCannotUseItsNetwork) {
  Bench bench;
  const std::shared_ptr<Runtime> runtime = bench.simulation.host("counter");
  Server server({.listen = "counter:1", .runtime = runtime});
  const Result<void> started = server.start();
  ASSERT_FALSE(started);
  EXPECT_TRUE(started.error().text.contains("simulation's loop")) << started.error().text;
  EXPECT_EQ(runtime->counters().transports, 0U);
}

TEST(Simulation, AddressesWithoutAHostBelongToTheHost) {
  Bench bench;
  bench.simulation.run([](Bench& of) -> Task<void> {
    Server server(of.simulation.loop(), {.listen = "0.0.0.0:80", .runtime = of.simulation.host("web")});
    server.register_handler<on_the_loop>();
    EXPECT_TRUE(server.start());
    EXPECT_EQ(server.address(), "web:80");
    Client neighbour({.runtime = of.simulation.host("web")});
    EXPECT_TRUE(co_await connect(neighbour, "localhost:80"));
    Client stranger;
    EXPECT_FALSE(co_await connect(stranger, "localhost:80"));
    co_await server.shut_down(Duration::zero());
  }(bench));
}

TEST(Simulation, FailuresHaveTheirPlace) {
  Simulation simulation(1);
  EXPECT_FALSE(simulation.expect(false, "a text"));
  EXPECT_TRUE(simulation.expect(true, "another"));
  ASSERT_EQ(simulation.failures().size(), 1U);
  EXPECT_TRUE(simulation.failures()[0].contains("simulation_test.cpp:")) << simulation.failures()[0];
  EXPECT_TRUE(simulation.failures()[0].ends_with(": a text")) << simulation.failures()[0];
  EXPECT_THROW(simulation.require(false, "a text"), RunFailed);
  EXPECT_THROW(Simulation(1, {.network = {.delay_min = seconds(2), .delay_max = seconds(1)}}), std::invalid_argument);
}

}  // namespace simulation_test
}  // namespace hawser::testing
