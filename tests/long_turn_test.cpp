#include <gtest/gtest.h>

#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

#include "exec/test/working_poller_testing.h"
#include "hawser/scope.h"
#include "hawser/with_timeout.h"
#include "tests/testing.h"
#include "transport/network_access.h"
#include "transport/sim/sim_network.h"

// Timeouts that begin in a turn of the loop which lasts long, in virtual time: decision 103.
namespace hawser::long_turn {

using namespace testing_tools;

Task<int> answer_after(int ms) {
  co_await Loop::current()->sleep(std::chrono::milliseconds(ms));
  co_return ms;
}

class LongTurn : public ::testing::Test {
 protected:
  static constexpr Duration long_work = 500ms;
  static constexpr Duration call_timeout = 200ms;

  void SetUp() override {
    server.register_handler<answer_after>();
    ASSERT_TRUE(server.start());
  }
  // Runs a task which begins with a connected client.
  template <class Body>
  void run(Body body) {
    loop.run([](LongTurn& test, Body with) -> Task<void> {
      auto connected = co_await test.client.connect(test.server.address());
      REQUIRE_OK(connected);
      co_await with();
    }(*this, std::move(body)));
  }
  void work(Duration time) { worked += time; }
  Task<void> work_in_turn(Duration time) {
    work(time);
    co_return;
  }
  Task<void> read_clock() {
    EXPECT_EQ(loop.after(Duration::zero()), now());
    EXPECT_EQ(loop.now(), now());
    co_return;
  }
  Task<void> expect_end(std::vector<Duration>& took) {
    const Time begin = now();
    auto reply = co_await client.call<answer_after>(10'000);
    EXPECT_ERROR(reply, deadline_exceeded, "");
    took.push_back(now() - begin);
  }
  Task<void> expect_answer(int ms) {
    auto reply = co_await client.call<answer_after>(ms);
    EXPECT_EQ(reply, ms);
  }
  Time now() { return loop.poller().now(); }

  Duration worked{};
  const Duration reading{};
  Loop loop{std::make_unique<exec::WorkingPoller>(worked, reading), LoopOptions{.log = no_log()}};
  std::shared_ptr<transport::SimNetwork> network = std::make_shared<transport::SimNetwork>(1);
  Server server{loop,
                transport::over(network, ServerOptions{.listen = "server:1", .transports = {.required = "stream"}})};
  const ClientOptions options{.call_timeout = call_timeout, .transports = {.required = "stream"}};
  Client client{loop, transport::over(network, options)};
};

TEST_F(LongTurn, ACallThatFollowsWorkHasItsWholeTimeout) {
  run([&]() -> Task<void> {
    for (const bool own_timeout : {false, true}) {
      for (const int answer : {100, 150}) {
        work(long_work);
        auto reply = own_timeout ? co_await client.call<answer_after>({.timeout = 201ms}, answer)
                                 : co_await client.call<answer_after>(answer);
        EXPECT_EQ(reply, answer) << (own_timeout ? "own timeout" : "timeout of the client");
      }
    }
  });
}

TEST_F(LongTurn, ACallEndsWhenItsTimeoutHasPassedSinceTheTurn) {
  run([&]() -> Task<void> {
    for (const bool own_timeout : {false, true}) {
      work(long_work);
      const Time begin = now();
      auto reply = own_timeout ? co_await client.call<answer_after>({.timeout = 201ms}, 1000)
                               : co_await client.call<answer_after>(1000);
      EXPECT_ERROR(reply, deadline_exceeded, "");
      EXPECT_GE(now() - begin, call_timeout);
      EXPECT_LE(now() - begin, call_timeout + 50ms);
    }
  });
}

// The calls of a client share a timer, in the order of their deadlines. Each turn is long, and the next call begins in
// another one.
TEST_F(LongTurn, CallsOfSeveralLongTurnsEndInTheirOrder) {
  run([&]() -> Task<void> {
    std::vector<Duration> took;
    Scope scope;
    for (int i = 0; i < 5; ++i) {
      work(30ms);
      scope.spawn(expect_end(took));
      scope.spawn(expect_end(took));
      co_await loop.sleep(1ms);
    }
    co_await scope.join();
    EXPECT_EQ(took.size(), 10U);
    for (const Duration each : took) {
      EXPECT_GE(each, call_timeout);
      EXPECT_LE(each, call_timeout + 100ms);
    }
  });
}

TEST_F(LongTurn, ACallBeforeTheWorkCountsFromTheEndOfTheTurn) {
  run([&]() -> Task<void> {
    Scope scope;
    scope.spawn(expect_answer(100));
    scope.spawn(work_in_turn(long_work));
    scope.spawn(expect_answer(150));
    co_await scope.join();
  });
}

TEST_F(LongTurn, ASleepThatFollowsWorkHasItsWholeTime) {
  run([&]() -> Task<void> {
    work(long_work);
    const Time begin = now();
    co_await loop.sleep(20ms);
    EXPECT_GE(now() - begin, 20ms);
    EXPECT_LE(now() - begin, 40ms);
  });
}

TEST_F(LongTurn, WithTimeoutCountsFromItsBegin) {
  run([&]() -> Task<void> {
    work(long_work);
    const auto result = co_await with_timeout(50ms, [&](std::stop_token token) -> Task<Result<int>> {
      auto slept = co_await loop.sleep(20ms, token);
      if (!slept) co_return fail(std::move(slept.error()));
      co_return 1;
    });
    EXPECT_EQ(result, 1);
  });
}

TEST_F(LongTurn, APoolThatHasToConnectHasTheWholeTimeout) {
  run([&]() -> Task<void> {
    const auto pool =
        ClientPool::create(loop, server.address(), transport::over(network, PoolOptions{.client = options}));
    for (const char* what : {"a new connection", "the same connection"}) {
      work(long_work);
      auto reply = co_await pool->call<answer_after>(50);
      EXPECT_EQ(reply, 50) << what;
    }
  });
}

TEST_F(LongTurn, TheTimeOfALoopGoesForwardByAfter) {
  run([&]() -> Task<void> {
    const Time begin = loop.now();
    work(9ms);
    EXPECT_EQ(loop.after(1ms), begin + 1ms) << "the turn is short";
    EXPECT_EQ(loop.now(), begin);
    work(1ms);
    EXPECT_EQ(loop.after(1ms), begin + 11ms);
    EXPECT_EQ(loop.now(), begin + 10ms);
    EXPECT_EQ(loop.after(forever), Time::max());
    co_return;
  });
}

// Calls of each part of a turn count from its end, also if after() has read the clock between them.
TEST_F(LongTurn, CallsBetweenReadingsOfTheClockCountFromTheEnd) {
  run([&]() -> Task<void> {
    Scope scope;
    for (int i = 0; i < 3; ++i) {
      scope.spawn(expect_answer(150));
      scope.spawn(work_in_turn(150ms));
      scope.spawn(read_clock());
    }
    co_await scope.join();
  });
}

TEST_F(LongTurn, ManyReadingsOfTheClockForgetNoCallOfTheirTurn) {
  run([&]() -> Task<void> {
    Scope scope;
    scope.spawn(expect_answer(150));
    for (int i = 0; i < 100; ++i) {
      scope.spawn(work_in_turn(10ms));
      scope.spawn(read_clock());
    }
    co_await scope.join();
  });
}

}  // namespace hawser::long_turn
