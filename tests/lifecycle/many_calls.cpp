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

TEST(ManyCalls, OfConnectionsThatEndTogetherAreCancelledInPortions) {
  constexpr std::size_t connections = 3;
  constexpr std::size_t calls = 1500;
  Waiters waiters;
  Loop loop;
  Server server(loop, {.listen = "127.0.0.1:0", .calls_per_connection_max = calls});
  server.register_handler<&Waiters::wait>(&waiters);
  ASSERT_TRUE(server.start());
  loop.run([](Server& own) -> Task<void> {
    Loop& here = *Loop::current();
    {
      std::vector<std::unique_ptr<Client>> clients;
      std::vector<PendingCall<&Waiters::wait>> pending;
      for (std::size_t i = 0; i < connections; ++i) {
        clients.push_back(std::make_unique<Client>(ClientOptions{.transports = {.required = "stream"}}));
        auto connected = co_await clients.back()->connect(own.address());
        REQUIRE_OK(connected);
        for (std::size_t call = 0; call < calls; ++call) {
          auto sent = co_await clients.back()->send_request<&Waiters::wait>();
          REQUIRE_OK(sent);
          pending.push_back(std::move(*sent));
        }
      }
      auto all = co_await eventually(here, [&] { return own.counters().calls_in_flight == connections * calls; });
      EXPECT_TRUE(all) << own.counters().calls_in_flight;
      for (const auto& client : clients) client->close();
    }
    auto none = co_await eventually(here, [&] { return own.counters().connections_open == 0; });
    EXPECT_TRUE(none);
    co_await own.shut_down(patience);
  }(server));
  std::size_t total = 0;
  for (const auto& [tick, count] : waiters.ticks) {
    EXPECT_LE(count, rpc::CallCancelling::calls_tick_max);
    total += count;
  }
  EXPECT_EQ(total, connections * calls);
  EXPECT_GE(waiters.ticks.size(), connections * calls / rpc::CallCancelling::calls_tick_max);
}

}  // namespace hawser::many_calls
