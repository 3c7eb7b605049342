#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hawser/client_pool.h"
#include "hawser/cluster_client.h"
#include "hawser/interceptor.h"
#include "hawser/retry.h"
#include "hawser/scope.h"
#include "hawser/testing.h"

// Callers that are destroyed while their calls run, at each place of a call, in virtual time.
namespace hawser::ended_callers {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using testing::SimServer;
using testing::Simulation;

Task<std::string> stay(Context& context, std::string text) {
  static_cast<void>(co_await context.loop().sleep(hours(1), context.token()));
  co_return text;
}
Task<std::string> rest(Context& context, std::string text) {
  co_await context.loop().sleep(milliseconds(100));
  co_return text;
}
Result<std::string> refuse(std::string) { return fail(ErrorCode::overloaded, "this server is overloaded"); }
Task<void> write_one(Context& context, Writer<int> out) {
  static_cast<void>(co_await out.write(1));
  static_cast<void>(co_await context.loop().sleep(hours(1), context.token()));
}

// Text of a call's outcome.
template <class Outcome>
std::string text_of(const Outcome& outcome) {
  return outcome ? "a result" : outcome.error().text;
}
constexpr auto call_stay = [](auto& by) -> Task<std::string> {
  co_return text_of(co_await by.template call<stay>("x"));
};
constexpr auto call_reply = [](auto& by) -> Task<std::string> {
  co_return text_of(co_await by.template call<stay>("x").reply());
};
constexpr auto open_and_read = [](auto& by) -> Task<std::string> {
  auto opened = co_await by.template open<write_one>();
  if (!opened) co_return opened.error().text;
  auto reader = opened->reader();
  for (;;) {
    const auto item = co_await reader.next();
    if (!item || !*item) co_return text_of(item);
  }
};
constexpr auto open_and_finish = [](auto& by) -> Task<std::string> {
  auto opened = co_await by.template open<write_one>();
  if (!opened) co_return opened.error().text;
  co_return text_of(co_await opened->finish());
};

struct EndedCallers {
  EndedCallers() {
    server = &simulation.serve("a:1", [](Server& one) {
      one.register_handler<stay, rest, refuse, write_one>();
      return nullptr;
    });
    simulation.serve("b:1", [](Server& one) {
      one.register_handler<stay, rest, refuse, write_one>();
      return nullptr;
    });
  }

  // Begins calls of what `make` returns, destroys it after 50 ms, and expects that each call then ends with `text`.
  template <class Make, class Begin>
  Task<void> expect_end(Make make, Begin begin, std::string text, std::size_t count = 1) {
    auto owner = make();
    std::vector<std::string> outcomes;
    Scope calls;
    for (std::size_t i = 0; i < count; ++i) {
      calls.spawn([](auto& by, auto& run, std::vector<std::string>& to) -> Task<void> {
        std::string outcome = co_await run(by);
        to.push_back(std::move(outcome));
      }(*owner, begin, outcomes));
    }
    co_await simulation.loop().sleep(milliseconds(50));
    EXPECT_EQ(outcomes.size(), 0U) << outcomes[0];
    owner.reset();
    const Duration destroyed = simulation.elapsed();
    co_await calls.join();
    EXPECT_LT(simulation.elapsed() - destroyed, milliseconds(10)) << "calls end at once";
    EXPECT_EQ(outcomes.size(), count);
    for (const std::string& outcome : outcomes) EXPECT_TRUE(outcome.contains(text)) << outcome;
  }

  Simulation simulation{1};
  SimServer* server;
};

template <class Body>
void with_callers(Body body) {
  EndedCallers of;
  of.simulation.run([](EndedCallers& on, Body& run) -> Task<void> { co_await run(on); }(of, body));
}

// ---- ClientPool ----

constexpr const char* pool_ended = "the pool was destroyed";

auto pool_with(PoolOptions options) {
  return [options = std::move(options)] { return ClientPool::create("a:1", options); };
}

TEST(EndedPool, InFlight) {
  with_callers([](EndedCallers& of) -> Task<void> {
    co_await of.expect_end(pool_with({}), call_stay, pool_ended, 3);
    co_await of.expect_end(pool_with({}), call_reply, pool_ended);
    const auto send = [](ClientPool& by) -> Task<std::string> {
      auto pending = co_await by.send_request([](Client& client) { return client.send_request<stay>("x"); });
      if (!pending) co_return pending.error().text;
      co_return text_of(co_await std::move(*pending));
    };
    co_await of.expect_end(pool_with({}), send, pool_ended);
    const auto within = [](ClientPool& by) -> Task<std::string> {
      co_return text_of(co_await by.send_request(
          [](Client& client) -> Task<Result<std::string>> { co_return co_await client.call<stay>("x"); }));
    };
    co_await of.expect_end(pool_with({}), within, pool_ended);
  });
}

TEST(EndedPool, WithStreams) {
  with_callers([](EndedCallers& of) -> Task<void> {
    co_await of.expect_end(pool_with({}), open_and_read, pool_ended, 3);
    co_await of.expect_end(pool_with({}), open_and_finish, pool_ended);
  });
}

TEST(EndedPool, WhileCallsWaitForAPlace) {
  with_callers([](EndedCallers& of) -> Task<void> {
    const PoolOptions one{.client = {.calls_in_flight_max = 1}, .connections_max = 1};
    co_await of.expect_end(pool_with(one), call_stay, pool_ended, 4);
  });
}

TEST(EndedPool, WhileItConnectsAndPauses) {
  with_callers([](EndedCallers& of) -> Task<void> {
    of.simulation.partition("a");
    co_await of.expect_end(pool_with({}), call_stay, pool_ended, 2);
    co_await of.expect_end(pool_with({}), open_and_read, pool_ended, 2);
    of.simulation.end_partitions();
    of.server->crash();
    const PoolOptions pauses{.backoff_min = hours(1), .backoff_max = hours(1)};
    co_await of.expect_end(pool_with(pauses), call_stay, pool_ended, 2);
  });
}

PoolOptions with_waiting_interceptor() {
  PoolOptions options;
  options.client.interceptors.push_back(client_interceptor([](OutgoingCall& call, Next next) -> Task<Result<void>> {
    co_await call.loop().sleep(hours(1));
    co_return co_await next();
  }));
  return options;
}

TEST(EndedPool, WhileInterceptorsWait) {
  with_callers([](EndedCallers& of) -> Task<void> {
    co_await of.expect_end(pool_with(with_waiting_interceptor()), call_stay, pool_ended, 3);
    co_await of.expect_end(pool_with(with_waiting_interceptor()), open_and_read, pool_ended, 3);
  });
}

// ---- ClusterClient ----

constexpr const char* cluster_ended = "the client was destroyed";

struct NoList final : NamingSource {
  void start(Loop&, NamingSink&) override {}
};

auto cluster_with(ClusterOptions options, std::string name = "list:a:1,b:1") {
  return [options = std::move(options), name] {
    auto client = ClusterClient::create(name, options);
    EXPECT_TRUE(client) << client.error().text;
    return std::move(*client);
  };
}

TEST(EndedClusterClient, InFlight) {
  with_callers([](EndedCallers& of) -> Task<void> {
    co_await of.expect_end(cluster_with({}), call_stay, cluster_ended, 5);
    co_await of.expect_end(cluster_with({}), call_reply, cluster_ended);
    const auto again = [](ClusterClient& by) -> Task<std::string> {
      const CallOptions options{.idempotent = true};
      co_return text_of(co_await by.call<stay>(options, "x"));
    };
    co_await of.expect_end(cluster_with({}), again, cluster_ended);
    co_await of.expect_end(cluster_with({.hedging = {.attempts_max = 2, .delay = milliseconds(10), .budget = 1}}),
                           again, cluster_ended, 3);
  });
}

TEST(EndedClusterClient, WithStreams) {
  with_callers([](EndedCallers& of) -> Task<void> {
    co_await of.expect_end(cluster_with({}), open_and_read, cluster_ended, 3);
    co_await of.expect_end(cluster_with({}), open_and_finish, cluster_ended);
  });
}

TEST(EndedClusterClient, WhileInterceptorsWait) {
  with_callers([](EndedCallers& of) -> Task<void> {
    co_await of.expect_end(cluster_with({.pool = with_waiting_interceptor()}), call_stay, cluster_ended, 5);
    co_await of.expect_end(cluster_with({.pool = with_waiting_interceptor()}), open_and_read, cluster_ended, 3);
  });
}

TEST(EndedClusterClient, WhileCallsWaitForAPlace) {
  with_callers([](EndedCallers& of) -> Task<void> {
    const PoolOptions one{.client = {.calls_in_flight_max = 1}, .connections_max = 1};
    co_await of.expect_end(cluster_with({.pool = one}), call_stay, cluster_ended, 8);
  });
}

TEST(EndedClusterClient, WhileItConnectsAndWaitsForAList) {
  with_callers([](EndedCallers& of) -> Task<void> {
    const NamingScheme none{.name = "none", .open = [](std::string_view) { return std::make_unique<NoList>(); }};
    co_await of.expect_end(cluster_with({.naming = {none}}, "none:x"), call_stay, cluster_ended, 2);
    of.simulation.partition("client");
    co_await of.expect_end(cluster_with({}), call_stay, cluster_ended, 2);
    co_await of.expect_end(cluster_with({}), open_and_read, cluster_ended, 2);
  });
}

constexpr const char* no_attempt = "this server is overloaded; the object that would make another attempt";

TEST(EndedClusterClient, BetweenTwoAttempts) {
  with_callers([](EndedCallers& of) -> Task<void> {
    const auto refused = [](ClusterClient& by) -> Task<std::string> {
      co_return text_of(co_await by.call<refuse>("x"));
    };
    const RetryPolicy pauses{.backoff_first = hours(1), .backoff_max = hours(1)};
    co_await of.expect_end(cluster_with({.pool = {.client = {.call_timeout = forever}}, .retry = pauses}), refused,
                           no_attempt, 2);
  });
}

TEST(EndedClusterClient, BeforeACallIsAwaited) {
  with_callers([](EndedCallers&) -> Task<void> {
    auto client = cluster_with({})();
    auto call = client->call<stay>("x");
    auto opening = client->open<write_one>();
    auto pool = pool_with({})();
    auto pooled = pool->call<stay>("x");
    client.reset();
    pool.reset();
    EXPECT_TRUE(text_of(co_await std::move(call)).contains(cluster_ended));
    EXPECT_TRUE(text_of(co_await std::move(opening)).contains(cluster_ended));
    EXPECT_TRUE(text_of(co_await std::move(pooled)).contains(pool_ended));
  });
}

// ---- Retrying ----

TEST(EndedRetrying, BetweenTwoAttempts) {
  with_callers([](EndedCallers& of) -> Task<void> {
    const auto pool = pool_with({})();
    const auto make = [&pool] {
      return std::make_unique<Retrying<ClientPool>>(*pool,
                                                    RetryPolicy{.backoff_first = hours(1), .backoff_max = hours(1)});
    };
    const auto refused = [](auto& by) -> Task<std::string> {
      co_return text_of(co_await by.template call<refuse>("x"));
    };
    co_await of.expect_end(make, refused, no_attempt, 2);
  });
}

TEST(EndedRetrying, AnAttemptInFlightGoesOn) {
  with_callers([](EndedCallers& of) -> Task<void> {
    const auto pool = pool_with({})();
    std::optional<Retrying<ClientPool>> retrying(*pool);
    auto late = retrying->call<stay>("late");
    auto opening = retrying->open<write_one>();
    Scope calls;
    calls.spawn([](Retrying<ClientPool>& by) -> Task<void> {
      const Result<std::string> reply = co_await by.call<rest>("x");
      EXPECT_EQ(reply, "x");
    }(*retrying));
    co_await of.simulation.loop().sleep(milliseconds(50));
    retrying.reset();
    EXPECT_TRUE(text_of(co_await std::move(late)).contains("was destroyed before the call began"));
    EXPECT_TRUE(text_of(co_await std::move(opening)).contains("was destroyed before the call began"));
    co_await calls.join();
  });
}

// The client is destroyed first: while an attempt is in flight, between two attempts, and before a call.
template <class Via, class Make>
Task<void> destroy_client_first(EndedCallers& of, Make make, std::string_view in_flight) {
  auto via = make();
  co_await of.simulation.loop().sleep(milliseconds(1));
  const RetryPolicy policy{.backoff_first = hours(1), .backoff_max = hours(1)};
  Retrying<Via> retrying(*via, policy);
  Retrying<Retrying<Via>> outer(retrying, policy);
  Scope calls;
  const auto expect = [&calls]<auto F>(auto& by, std::string_view text) {
    calls.spawn([](auto& one, std::string_view part) -> Task<void> {
      const std::string end = text_of(co_await one.template call<F>("x"));
      EXPECT_TRUE(end.contains(part)) << end;
    }(by, text));
  };
  constexpr const char* between = "the object that would make another attempt was destroyed";
  expect.template operator()<stay>(retrying, in_flight);
  expect.template operator()<stay>(outer, in_flight);
  expect.template operator()<refuse>(retrying, between);
  expect.template operator()<refuse>(outer, between);
  co_await of.simulation.loop().sleep(std::chrono::minutes(1));
  EXPECT_EQ(calls.size(), 4U);
  via.reset();
  co_await calls.join();
  constexpr const char* before = "or its client, was destroyed before the call began";
  EXPECT_TRUE(text_of(co_await retrying.template call<stay>("late")).contains(before));
  EXPECT_TRUE(text_of(co_await retrying.template open<write_one>()).contains(before));
  EXPECT_TRUE(text_of(co_await outer.template call<stay>("late")).contains(before));
}

TEST(EndedRetrying, AfterItsClient) {
  with_callers([](EndedCallers& of) -> Task<void> {
    const ClientOptions patient{.call_timeout = forever};
    co_await destroy_client_first<ClusterClient>(of, cluster_with({.pool = {.client = patient}}), cluster_ended);
    co_await destroy_client_first<ClientPool>(of, pool_with({.client = patient}), pool_ended);
    auto connected = std::make_unique<Client>(patient);
    EXPECT_TRUE(co_await connected->connect("a:1"));
    co_await destroy_client_first<Client>(of, [&] { return std::move(connected); }, "the client was destroyed");
  });
}

}  // namespace
}  // namespace hawser::ended_callers
