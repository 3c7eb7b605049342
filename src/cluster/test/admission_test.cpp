#include "hawser/admission.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "hawser/client.h"
#include "hawser/sync.h"
#include "hawser/testing.h"

namespace hawser::cluster {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Simulation;

// A server that executes four calls at a time, each in 10 ms.
struct Clerk {
  Semaphore workers{4};
  Task<int> serve(Context& context, int number) {
    const Permit permit = co_await workers.acquire();
    co_await context.loop().sleep(milliseconds(10));
    co_return number;
  }
};

struct Served {
  int good = 0;  // Within 100 ms.
  int refused = 0;
  int late = 0;
};

// Offers a call every `gap` for a time, each with a deadline of 100 ms.
Task<std::map<std::string, Served>> offer(Simulation& simulation, Client& client, Duration gap, Duration duration) {
  std::map<std::string, Served> served;
  Scope calls;
  const Duration until = simulation.elapsed() + duration;
  for (int i = 0; simulation.elapsed() < until; ++i) {
    calls.spawn([](Client& by, int number, std::map<std::string, Served>& of) -> Task<void> {
      const std::string priority = number % 4 == 0 ? "critical" : number % 4 == 1 ? "sheddable" : "default";
      const CallOptions options{.timeout = milliseconds(100), .metadata = {{"hawser-priority", priority}}};
      const auto result = co_await by.call<&Clerk::serve>(options, number);
      Served& mine = of[priority];
      ++(result ? mine.good : result.error().code == ErrorCode::overloaded ? mine.refused : mine.late);
    }(client, i, served));
    co_await simulation.loop().sleep(gap);
  }
  co_await calls.join();
  co_return served;
}

std::map<std::string, Served> run(bool limited, Duration gap) {
  std::map<std::string, Served> served;
  Simulation simulation(1);
  const Admission admission({.limit = {.initial = 8}});
  simulation.serve("a:1", [&](Server& server) {
    auto clerk = std::make_unique<Clerk>();
    server.register_handler<&Clerk::serve>(clerk.get());
    if (limited) server.use(admission);
    return clerk;
  });
  simulation.run([](Simulation& on, Duration every, std::map<std::string, Served>& out) -> Task<void> {
    Client client;
    EXPECT_TRUE(co_await client.connect("a:1"));
    out = co_await offer(on, client, every, seconds(10));
  }(simulation, gap, served));
  EXPECT_EQ(admission.state().in_flight, 0U);
  return served;
}

TEST(Admission, RefusesNothingWithoutOverload) {
  for (const auto& [priority, one] : run(true, milliseconds(4))) {
    EXPECT_EQ(one.refused, 0) << priority;
    EXPECT_EQ(one.late, 0) << priority;
  }
}

TEST(Admission, UnderOverloadCallsAreRefusedAndNotLateAndCriticalOnesLast) {
  // Twice the capacity, which is 0.4 calls in 1 ms.
  auto limited = run(true, microseconds(1250));
  int good = 0;
  for (const auto& [priority, one] : limited) {
    good += one.good;
    EXPECT_LE(one.late, 40) << priority;
  }
  EXPECT_GT(good, 3600) << "of 4000";
  EXPECT_LT(limited["critical"].refused, limited["default"].refused / 8);
  EXPECT_GT(limited["sheddable"].refused, limited["sheddable"].good * 9);
  auto unlimited = run(false, microseconds(1250));
  EXPECT_GT(unlimited["critical"].late, 1000) << "the simulation shows what the limit avoids";
}

TEST(Admission, RefusesOptionsOutOfTheirRange) {
  EXPECT_THROW(Admission({.limit = {.min = 0}}), std::invalid_argument);
  EXPECT_THROW(Admission({.sheddable_part = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace hawser::cluster
