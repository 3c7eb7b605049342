#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "hawser/grpc_client.h"
#include "hawser/grpc_health.h"
#include "hawser/hawser.h"
#include "tests/grpc/raw_service.h"
#include "tests/testing.h"

// The service grpc.health.v1.Health. The messages are written by hand: HealthCheckRequest{string service = 1},
// HealthCheckResponse{ServingStatus status = 1}.
namespace hawser {
namespace health {

using testing_tools::Raw;
Result<Raw> check(Raw);
Result<Raw> list(Raw);
Task<Result<void>> watch(Raw, Writer<Raw>);

}  // namespace health

template <>
inline constexpr std::string_view method_name_override<&health::check> = "grpc.health.v1.Health/Check";
template <>
inline constexpr std::string_view method_name_override<&health::list> = "grpc.health.v1.Health/List";
template <>
inline constexpr std::string_view method_name_override<&health::watch> = "grpc.health.v1.Health/Watch";

namespace {

using namespace testing_tools;

const std::string serving = "\x08\x01";
const std::string not_serving = "\x08\x02";
const std::string service_unknown = "\x08\x03";
const std::string shop = "\x0A\x04shop";

Task<void> use(GrpcClient& client, std::string address, GrpcHealth& health) {
  auto connected = co_await client.connect(address);
  REQUIRE(connected.has_value());
  auto whole = co_await client.call<&health::check>(Raw{});
  EXPECT_EQ(whole.value_or(Raw{}).bytes, serving);
  auto unknown = co_await client.call<&health::check>(Raw{shop});
  EXPECT_TRUE(is_error(unknown, ErrorCode::application, "shop"));
  EXPECT_EQ(unknown.error().application_code, 5);
  auto malformed = co_await client.call<&health::check>(Raw{"\x0A\x7F"});
  EXPECT_TRUE(is_error(malformed, ErrorCode::application, "HealthCheckRequest"));
  // A watcher would keep a long name as long as it watches.
  const std::string long_name = "\x0A\x81\x08" + std::string(1025, 'x');
  auto too_long = co_await client.call<&health::check>(Raw{long_name});
  EXPECT_TRUE(is_error(too_long, ErrorCode::application, "1025 bytes"));
  auto watching_long = co_await client.open<&health::watch>(Raw{long_name});
  REQUIRE(watching_long.has_value());
  auto refused = co_await watching_long->finish();
  EXPECT_TRUE(is_error(refused, ErrorCode::application, "1025 bytes"));
  auto watching = co_await client.open<&health::watch>(Raw{shop});
  REQUIRE(watching.has_value());
  auto reader = watching->reader();
  auto first = co_await reader.next();
  REQUIRE(first.has_value() && first->has_value());
  EXPECT_EQ((*first)->bytes, service_unknown);
  for (const bool up : {true, false, true}) {
    health.set("shop", up);
    auto next = co_await reader.next();
    REQUIRE(next.has_value() && next->has_value());
    EXPECT_EQ((*next)->bytes, up ? serving : not_serving);
  }
  auto now = co_await client.call<&health::check>(Raw{shop});
  EXPECT_EQ(now.value_or(Raw{}).bytes, serving);
  auto list = co_await client.call<&health::list>(Raw{});
  EXPECT_EQ(list.value_or(Raw{}).bytes, "\x0A\x06" + std::string("\x0A\0\x12\x02", 4) + serving +  //
                                            "\x0A\x0A" + shop + "\x12\x02" + serving);
}

TEST(GrpcHealth, ChecksWatchesAndLists) {
  Server server;
  GrpcHealth health(server);
  server.enable(grpc());
  ASSERT_TRUE(server.start());
  Loop loop;
  GrpcClient client(loop);
  loop.run(use(client, server.address(), health));
}

// A stop of the server ends those who watch.
TEST(GrpcHealth, WatchersEndWithTheServer) {
  Server server;
  GrpcHealth health(server);
  server.enable(grpc());
  ASSERT_TRUE(server.start());
  Loop loop;
  GrpcClient client(loop);
  loop.run([](GrpcClient& used, Server& stopped) -> Task<void> {
    auto connected = co_await used.connect(stopped.address());
    REQUIRE(connected.has_value());
    auto watching = co_await used.open<&health::watch>(Raw{});
    REQUIRE(watching.has_value());
    auto reader = watching->reader();
    auto first = co_await reader.next();
    EXPECT_TRUE(first && *first && (*first)->bytes == serving);
    auto watching_unknown = co_await used.open<&health::watch>(Raw{shop});
    REQUIRE(watching_unknown.has_value());
    auto unknown = watching_unknown->reader();
    auto is_unknown = co_await unknown.next();
    EXPECT_TRUE(is_unknown && *is_unknown && (*is_unknown)->bytes == service_unknown);
    std::thread stopping([&stopped] { stopped.stop(patience); });
    auto last = co_await reader.next();
    EXPECT_TRUE(last && *last && (*last)->bytes == not_serving);
    auto no_more = co_await unknown.next();
    EXPECT_FALSE(no_more && *no_more);  // A service that is not known does not become one that does not serve.
    auto result = co_await watching->finish();
    EXPECT_TRUE(is_error(result, ErrorCode::application, "stopping"));
    auto gone = co_await eventually(*Loop::current(), [&used] { return !used.connected(); });
    EXPECT_TRUE(gone);
    stopping.join();
  }(client, server));
}

// One health: the reporters and what the program sets, of the server and of each service.
TEST(GrpcHealth, IsThatOfTheReporters) {
  std::atomic<bool> database{true};
  std::atomic<bool> cache{true};
  const auto check_of = [](std::atomic<bool>& good) {
    return [&good]() -> Result<void> {
      if (good) return {};
      return fail(ErrorCode::unavailable, "no route");
    };
  };
  Server server;
  GrpcHealth health(server);
  const ServerHealth all(server);
  all.add({.name = "database", .check = check_of(database)});
  all.add({.name = "cache", .check = check_of(cache), .service = "shop"});
  server.enable(grpc());
  ASSERT_TRUE(server.start());
  Loop loop;
  GrpcClient client(loop);
  const auto use_reporters = [&]() -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE(connected.has_value());
    auto watching = co_await client.open<&health::watch>(Raw{shop});
    REQUIRE(watching.has_value());
    auto reader = watching->reader();
    auto first = co_await reader.next();
    EXPECT_TRUE(first && *first && (*first)->bytes == serving);
    struct Step {
      bool database, cache, set;
      std::string server_is, shop_is;
    };
    for (const Step& step :
         {Step{true, false, true, serving, not_serving}, Step{true, true, true, serving, serving},
          Step{false, true, true, not_serving, not_serving}, Step{true, true, true, serving, serving},
          Step{true, true, false, not_serving, not_serving}}) {
      database = step.database;
      cache = step.cache;
      all.set("", step.set);
      auto whole = co_await client.call<&health::check>(Raw{});
      EXPECT_EQ(whole.value_or(Raw{}).bytes, step.server_is);
      auto service = co_await client.call<&health::check>(Raw{shop});
      EXPECT_EQ(service.value_or(Raw{}).bytes, step.shop_is);
      EXPECT_EQ(all.status("shop"), step.shop_is == serving ? HealthStatus::serving : HealthStatus::not_serving);
      auto next = co_await reader.next();
      EXPECT_TRUE(next && *next && (*next)->bytes == step.shop_is);
    }
    EXPECT_EQ(all.status("nothing"), HealthStatus::unknown);
    auto list = co_await client.call<&health::list>(Raw{});
    EXPECT_EQ(list.value_or(Raw{}).bytes, "\x0A\x06" + std::string("\x0A\0\x12\x02", 4) + not_serving +  //
                                              "\x0A\x0A" + shop + "\x12\x02" + not_serving);
  };
  loop.run(use_reporters());
  server.stop();
  EXPECT_EQ(all.status(), HealthStatus::not_serving);
}

// The native protocol has the same health.
TEST(GrpcHealth, IsKnownToClientsOfHawser) {
  Server server;
  const ServerHealth health(server);
  health.add({.name = "thrower", .check = []() -> Result<void> { throw 7; }, .service = "shop"});
  ASSERT_TRUE(server.start());
  Loop loop;
  Client client(loop);
  const auto ask = [&]() -> Task<void> {
    auto connected = co_await client.connect(server.address());
    REQUIRE(connected.has_value());
    auto whole = co_await client.call<is_serving>("");
    EXPECT_TRUE(whole && *whole);
    auto service = co_await client.call<is_serving>("shop");
    EXPECT_TRUE(service && !*service);
    auto unknown = co_await client.call<is_serving>("nothing");
    EXPECT_TRUE(is_error(unknown, ErrorCode::invalid_argument, "nothing"));
    health.set("", false);
    auto taken_out = co_await client.call<is_serving>("");
    EXPECT_TRUE(taken_out && !*taken_out);
  };
  loop.run(ask());
}

}  // namespace
}  // namespace hawser
