#include "tests/conformance/backend.h"
#include "tests/conformance/handlers.h"

namespace hawser::conformance {

TEST_P(Conformance, PoolsShareABoundedNumberOfConnections) {
  auto server = make_server();
  server->register_handler<slow_echo>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    auto pool = make_pool(server->address(), {.connections_max = 3, .calls_per_connection = 10});
    EXPECT_EQ(pool->connections(), 0U);
    Scope scope;
    int good = 0;
    std::size_t most = 0;
    auto one = [&](int i) -> Task<void> {
      auto reply = co_await pool->call<slow_echo>(std::to_string(i), 20U);
      good += reply == std::to_string(i);
      most = std::max(most, pool->connections());
    };
    for (int i = 0; i < 200; ++i) scope.spawn(one(i));
    co_await scope.join();
    EXPECT_EQ(good, 200);
    EXPECT_LE(most, 3U);
    EXPECT_LE(server->counters().connections_accepted, 3U);
    EXPECT_EQ(pool->calls_in_flight(), 0U);
  });
}

TEST_P(Conformance, PoolsMultiplexBeforeTheyGrow) {
  auto server = make_server();
  server->register_handler<slow_echo>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    auto pool = make_pool(server->address(), {.connections_max = 4, .calls_per_connection = 64});
    Scope scope;
    auto one = [&]() -> Task<void> {
      auto reply = co_await pool->call<slow_echo>("x", 5U);
      EXPECT_OK(reply);
    };
    for (int i = 0; i < 50; ++i) scope.spawn(one());
    co_await scope.join();
    EXPECT_EQ(server->counters().connections_accepted, 1U);
  });
}

// Use of a pool as in programs for coro_rpc.
TEST_P(Conformance, PoolsLoanClients) {
  auto server = make_server();
  server->register_handler<slow_echo, echo, half>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    auto pool = make_pool(server->address());
    auto pending =
        co_await pool->send_request([](Client& client) { return client.send_request<slow_echo>("ahead", 5U); });
    REQUIRE_OK(pending);
    auto other = co_await pool->call<echo>("meanwhile");
    EXPECT_EQ(other, "meanwhile");
    auto reply = co_await std::move(*pending);
    EXPECT_EQ(reply, "ahead");
    auto refused = co_await pool->call<half>(3U);
    EXPECT_ERROR(refused, application, "odd");
  });
}

TEST_P(Conformance, PoolsCloseWhatIsIdle) {
  auto server = make_server();
  server->register_handler<echo>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    auto pool = make_pool(server->address(), {.idle_timeout = 50ms});
    auto reply = co_await pool->call<echo>("x");
    EXPECT_OK(reply);
    EXPECT_EQ(pool->connections(), 1U);
    auto idle = co_await eventually(loop(), [&] { return pool->connections() == 0; });
    EXPECT_TRUE(idle);
    auto closed = co_await eventually(loop(), [&] { return server->counters().connections_open == 0; });
    EXPECT_TRUE(closed);
    auto again = co_await pool->call<echo>("y");
    EXPECT_EQ(again, "y");
    EXPECT_EQ(server->counters().connections_accepted, 2U);
  });
}

TEST_P(Conformance, PoolsReconnectAfterARestart) {
  auto first = make_server();
  first->register_handler<echo>();
  run([&]() -> Task<void> {
    REQUIRE_OK(first->start());
    const std::string address = first->address();
    auto pool = make_pool(address, {.backoff_min = 5ms, .backoff_max = 20ms});
    auto before = co_await pool->call<echo>("before");
    EXPECT_EQ(before, "before");
    co_await first->shut_down(1s);
    first.reset();
    const Time begin = loop().now();
    auto down = co_await pool->call<echo>("down");
    EXPECT_ERROR(down, unavailable, "after 3 attempts");
    // Three attempts have two pauses between them. Each pause is at least half of its upper bound.
    EXPECT_GE(loop().now() - begin, 2500us + 5000us);

    ServerOptions options = server_options();
    options.listen = address;
    auto second = make_server(options);
    second->register_handler<echo>();
    REQUIRE_OK(second->start());
    auto after = co_await pool->call<echo>("after");
    EXPECT_EQ(after, "after");
  });
}

// A connection to a server that is stopping accepts no new calls. The pool must neither use it nor wait for it.
TEST_P(Conformance, PoolsGetOverServersThatStop) {
  TestService service;
  auto first = make_server();
  first->register_handler<&TestService::wait_for_gate>(&service);
  first->register_handler<echo>();
  run([&]() -> Task<void> {
    REQUIRE_OK(first->start());
    const std::string address = first->address();
    auto pool = make_pool(address, {.connections_max = 1, .backoff_min = 1ms, .backoff_max = 5ms});
    Scope scope;
    auto hold = [&]() -> Task<void> {
      auto held = co_await pool->call<&TestService::wait_for_gate>();
      EXPECT_EQ(held, 1);
    };
    scope.spawn(hold());
    auto begun = co_await eventually(loop(), [&] { return service.waiting == 1; });
    EXPECT_TRUE(begun);
    auto stop = [&]() -> Task<void> { co_await first->shut_down(30s); };
    scope.spawn(stop());
    // Another server listens at the port while the first one still has a call to finish.
    co_await loop().sleep(20ms);
    ServerOptions options = server_options();
    options.listen = address;
    auto second = make_server(options);
    second->register_handler<echo>();
    REQUIRE_OK(second->start());
    auto reply = co_await pool->call<echo>("elsewhere");
    EXPECT_EQ(reply, "elsewhere");
    EXPECT_EQ(service.waiting, 1);
    service.gate = true;
    co_await scope.join();
  });
}

TEST_P(Conformance, PoolsOutliveLostConnections) {
  auto server = make_server();
  server->register_handler<echo, slow_echo>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    const std::string address = server->address();
    auto pool = make_pool(address, {.connections_max = 2, .backoff_min = 1ms, .backoff_max = 5ms});
    for (int round = 0; round < 5; ++round) {
      auto first = co_await pool->call<echo>("x");
      // The call may be sent on a connection whose loss has not been noticed yet. The loss is noticed then.
      if (!first) {
        EXPECT_ERROR(first, outcome_unknown, "");
      }
      auto reply = co_await pool->call<echo>("x");
      EXPECT_OK(reply);
      co_await server->shut_down(Duration(0));
      ServerOptions options = server_options();
      options.listen = address;
      server = make_server(options);
      server->register_handler<echo, slow_echo>();
      REQUIRE_OK(server->start());
    }
  });
}

}  // namespace hawser::conformance
