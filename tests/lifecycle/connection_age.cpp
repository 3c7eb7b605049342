#include "hawser/connection_age.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

#include "hawser/custom_protocol.h"
#include "tests/lifecycle/virtual_time.h"

// Connections that become too old, in virtual time.
namespace hawser::lifecycle {
namespace {

TEST_F(VirtualTime, ClientsOfOldConnectionsConnectAgainWithoutAFailedCall) {
  auto server = make_server();
  server->register_handler<echo>();
  server->register_handler<work>();
  bound_connection_age(*server, {.max = 60s});
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    const auto pool = ClientPool::create(loop, server->address(), over(network, PoolOptions{}));
    Scope scope;
    bool worked = false;
    // The old connection stays for a call that began before.
    scope.spawn([](ClientPool& with, bool& done) -> Task<void> {
      const Result<int> slept = co_await with.call<work>({.timeout = forever}, 600U);
      done = slept && *slept == 1;
    }(*pool, worked));
    for (int i = 0; i < 700; ++i) {
      const Result<std::string> echoed = co_await pool->call<echo>("x");
      EXPECT_OK(echoed);
      co_await loop.sleep(1s);
    }
    EXPECT_TRUE(worked);
    EXPECT_GE(server->counters().connections_accepted, 10U);
    EXPECT_LE(server->counters().connections_accepted, 14U);
    EXPECT_EQ(server->counters().connections_open, 1U);
  });
}

TEST_F(VirtualTime, AnOldConnectionEndsWithItsCallsWhenTheGraceIsOver) {
  auto server = make_server();
  server->register_handler<work>();
  bound_connection_age(*server, {.max = 60s, .grace = 10s});
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    const auto pool = ClientPool::create(loop, server->address(), over(network, PoolOptions{}));
    const Time begin = loop.now();
    const Result<int> worked = co_await pool->call<work>({.timeout = forever}, 600U);
    REQUIRE(!worked);
    EXPECT_EQ(worked.error().code, ErrorCode::outcome_unknown) << error_of(worked);
    EXPECT_GE(loop.now() - begin, 64s);
    EXPECT_LE(loop.now() - begin, 78s);
    co_await loop.sleep(1s);
    EXPECT_EQ(server->counters().connections_open, 0U);
  });
}

// A client of such a protocol is not asked to connect again: a busy connection stays until the grace is over.
TEST_F(VirtualTime, WhatABusyConnectionHasExecutedIsAnsweredWhenTheGraceIsOver) {
  int executed = 0;
  auto server = make_server();
  server->enable(CustomProtocol{.name = "lines",
                                .match = CustomProtocol::begins_with("work\n"),
                                .serve = [&executed](ProtocolConnection& connection) -> Task<void> {
                                  while (co_await connection.receive_until("\n", 100)) {
                                    ++executed;
                                    co_await Loop::current()->sleep(300ms);
                                    if (!co_await connection.send("done\n")) co_return;
                                  }
                                }});
  bound_connection_age(*server, {.max = 60s, .grace = 10s});
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    const auto raw = co_await connect_raw(loop, *network, server->address());
    REQUIRE(raw != nullptr);
    const Time begin = loop.now();
    std::size_t sent = 0;
    while (!raw->ended()) {
      if (raw->got().size() == sent * 5) {
        raw->send(as_bytes("work\n"));
        ++sent;
      }
      co_await loop.sleep(1ms);
    }
    EXPECT_EQ(raw->got().size(), static_cast<std::size_t>(executed) * 5);
    EXPECT_GE(executed, 200);
    EXPECT_GE(loop.now() - begin, 64s);
    EXPECT_LE(loop.now() - begin, 79s);
  });
}

TEST_F(VirtualTime, AnAgeIsPositive) {
  auto server = make_server();
  EXPECT_THROW(bound_connection_age(*server, {.max = 0s}), std::invalid_argument);
  EXPECT_THROW(bound_connection_age(*server, {.max = 1s, .grace = -1s}), std::invalid_argument);
}

}  // namespace
}  // namespace hawser::lifecycle
