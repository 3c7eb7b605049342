#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "rpc/port/call_cancelling.h"
#include "tests/testing.h"

// Connections end that have thousands of calls.
namespace hawser::many_calls {

using namespace testing_tools;

// The calls that were cancelled, by the tick.
using Ticks = std::map<Time, std::size_t>;

struct Waiters {
  Task<void> wait(Context& context) {
    const std::stop_callback count(context.token(), [&] { ++ticks[context.loop().now()]; });
    static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  }
  Ticks ticks;
};

// Ignores its token. Counts the calls that were destroyed, by the tick.
struct Sleepers {
  Task<void> sleep(Context& context) {
    struct End {
      ~End() { ++ticks[loop.now()]; }
      Ticks& ticks;
      Loop& loop;
    };
    const End end{ticks, context.loop()};
    co_await context.loop().sleep(1h);
  }
  Ticks ticks;
};

// Starts `calls` calls of F by each client.
template <auto F>
Task<std::vector<PendingCall<F>>> begin_calls(Server& server, std::vector<std::unique_ptr<Client>>& clients,
                                              std::size_t connections, std::size_t calls) {
  std::vector<PendingCall<F>> pending;
  for (std::size_t i = 0; i < connections; ++i) {
    clients.push_back(std::make_unique<Client>(ClientOptions{.transports = {.required = "stream"}}));
    auto connected = co_await clients.back()->connect(server.address());
    EXPECT_OK(connected);
    for (std::size_t call = 0; connected && call < calls; ++call) {
      auto sent = co_await clients.back()->template send_request<F>();
      EXPECT_OK(sent);
      if (sent) pending.push_back(std::move(*sent));
    }
  }
  auto all =
      co_await eventually(*Loop::current(), [&] { return server.counters().calls_in_flight == connections * calls; });
  EXPECT_TRUE(all) << server.counters().calls_in_flight;
  co_return pending;
}

void expect_portions(const Ticks& ticks, std::size_t calls) {
  std::size_t total = 0;
  for (const auto& [tick, count] : ticks) {
    EXPECT_LE(count, rpc::CallCancelling::calls_tick_max);
    total += count;
  }
  EXPECT_EQ(total, calls);
  EXPECT_GE(ticks.size(), calls / rpc::CallCancelling::calls_tick_max);
}

TEST(ManyCalls, ThatOutliveAStopAreDestroyedInPortions) {
  constexpr std::size_t connections = 3;
  constexpr std::size_t calls = 1500;
  Sleepers sleepers;
  Loop loop;
  Server server(loop, {.listen = "127.0.0.1:0", .calls_per_connection_max = calls});
  server.register_handler<&Sleepers::sleep>(&sleepers);
  ASSERT_TRUE(server.start());
  loop.run([](Server& own) -> Task<void> {
    std::vector<std::unique_ptr<Client>> clients;
    const auto pending = co_await begin_calls<&Sleepers::sleep>(own, clients, connections, calls);
    co_await own.shut_down(1ms);
    EXPECT_EQ(own.counters().calls_in_flight, 0U);
  }(server));
  expect_portions(sleepers.ticks, connections * calls);
}

TEST(ManyCalls, OfConnectionsThatEndTogetherAreCancelledInPortions) {
  constexpr std::size_t connections = 3;
  constexpr std::size_t calls = 1500;
  Waiters waiters;
  Loop loop;
  Server server(loop, {.listen = "127.0.0.1:0", .calls_per_connection_max = calls});
  server.register_handler<&Waiters::wait>(&waiters);
  ASSERT_TRUE(server.start());
  loop.run([](Server& own) -> Task<void> {
    {
      std::vector<std::unique_ptr<Client>> clients;
      const auto pending = co_await begin_calls<&Waiters::wait>(own, clients, connections, calls);
      for (const auto& client : clients) client->close();
    }
    auto none = co_await eventually(*Loop::current(), [&] { return own.counters().connections_open == 0; });
    EXPECT_TRUE(none);
    co_await own.shut_down(patience);
  }(server));
  expect_portions(waiters.ticks, connections * calls);
}

}  // namespace hawser::many_calls
