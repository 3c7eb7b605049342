#include "hawser/service_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "hawser/cluster_client.h"
#include "hawser/testing.h"

namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Simulation;

ServiceConfig parsed(std::string_view json) {
  auto config = ServiceConfig::parse(json);
  EXPECT_TRUE(config) << config.error().text;
  return config ? std::move(*config) : ServiceConfig();
}

TEST(ServiceConfig, HasTheFieldsOfGrpc) {
  const ServiceConfig config = parsed(R"({
    "loadBalancingConfig": [{"xds_experimental": {}}, {"round_robin": {}}, {"pick_first": {}}],
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.5},
    "methodConfig": [
      {"name": [{"service": "shop.Cart", "method": "Add"}, {"service": "shop::Cart", "method": "add"}],
       "timeout": "1.25s", "waitForReady": true,
       "retryPolicy": {"maxAttempts": 9, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 1.5,
                       "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"]}},
      {"name": [{"service": "shop.Cart"}, {"service": "shop.Stock"}], "unknown": [{}],
       "hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.000000001s", "nonFatalStatusCodes": ["RESOURCE_EXHAUSTED"]}},
      {"name": [{}], "timeout": "7s"}]})");
  EXPECT_EQ(config.balancing(), Balancing::round_robin) << "the first one that is known";
  EXPECT_EQ(config.retry_throttling()->tokens_max, 10);
  EXPECT_EQ(config.retry_throttling()->tokens_per_success, 0.5);
  const MethodConfig* const add = config.find("shop.Cart/Add");
  ASSERT_TRUE(add != nullptr && add->retry);
  EXPECT_EQ(add, config.find("shop::Cart::add"));
  EXPECT_EQ(add->timeout, milliseconds(1250));
  EXPECT_TRUE(add->wait_for_ready);
  EXPECT_EQ(add->retry->attempts_max, 5U) << "gRPC's maximum";
  EXPECT_EQ(add->retry->backoff_first, milliseconds(100));
  EXPECT_EQ(add->retry->backoff_max, seconds(1));
  EXPECT_EQ(add->retry->backoff_factor, 1.5);
  EXPECT_EQ(add->retry->codes, (std::vector{ErrorCode::unavailable, ErrorCode::not_sent, ErrorCode::outcome_unknown}));
  EXPECT_EQ(add->retry->application_codes, (std::vector<std::int32_t>{14, 10}));
  const MethodConfig* const service = config.find("shop.Cart/Remove");
  ASSERT_TRUE(service != nullptr && service->hedging);
  EXPECT_EQ(service, config.find("shop.Stock/Count"));
  EXPECT_EQ(service->hedging->attempts_max, 3U);
  EXPECT_EQ(service->hedging->delay, Duration(1));
  EXPECT_TRUE(service->retry->lists(Error::of_call(ErrorCode::overloaded, "")));
  EXPECT_FALSE(service->retry->lists(Error::of_call(ErrorCode::unavailable, "")));
  EXPECT_EQ(config.find("other.Service/Method")->timeout, seconds(7));
  EXPECT_EQ(config.find("plain")->timeout, seconds(7));
  EXPECT_EQ(parsed("{}").find("shop.Cart/Add"), nullptr);
  EXPECT_EQ(parsed(R"({"loadBalancingPolicy": "ROUND_ROBIN"})").balancing(), Balancing::round_robin);
}

TEST(ServiceConfig, ErrorsNameTheField) {
  const auto method = [](const std::string& fields) {
    return R"({"methodConfig": [{"name": [{"service": "s"}]}, {"name": [{"service": "t"}], )" + fields + "}]}";
  };
  const auto retry = [&](const std::string& field, const std::string& value) {
    std::string fields;
    for (auto [name, usual] : {std::pair{"maxAttempts", "2"},
                               {"initialBackoff", R"("1s")"},
                               {"maxBackoff", R"("1s")"},
                               {"backoffMultiplier", "2"},
                               {"retryableStatusCodes", R"(["ABORTED"])"}}) {
      fields += (fields.empty() ? "\"" : ", \"") + std::string(name) + "\": " + (field == name ? value : usual);
    }
    return method(R"("retryPolicy": {)" + fields + "}");
  };
  struct Case {
    std::string json;
    std::string field;
  };
  const std::vector<Case> cases = {
      {"[]", "the text"},
      {"{", "the text is malformed"},
      {R"({"methodConfig": {}})", "methodConfig must be a list"},
      {R"({"methodConfig": [1]})", "methodConfig[0] must be an object"},
      {R"({"methodConfig": [{}]})", "methodConfig[0].name is missing"},
      {R"({"methodConfig": [{"name": [{"method": "m"}]}]})", "methodConfig[0].name[0].method"},
      {R"({"methodConfig": [{"name": [{}, {}]}]})", "methodConfig[0].name[1] repeats"},
      {method(R"("timeout": "1")"), "methodConfig[1].timeout"},
      {method(R"("timeout": "-1s")"), "methodConfig[1].timeout"},
      {method(R"("timeout": "1.1234567890s")"), "methodConfig[1].timeout"},
      {method(R"("timeout": "99999999999999999999s")"), "methodConfig[1].timeout"},
      {method(R"("timeout": "315576000001s")"), "methodConfig[1].timeout"},
      {method(R"("timeout": 1)"), "methodConfig[1].timeout"},
      {method(R"("waitForReady": 1)"), "methodConfig[1].waitForReady"},
      {method(R"("retryPolicy": {}, "hedgingPolicy": {})"), "methodConfig[1] must have"},
      {retry("maxAttempts", "1"), "methodConfig[1].retryPolicy.maxAttempts"},
      {retry("maxAttempts", "2.5"), "methodConfig[1].retryPolicy.maxAttempts"},
      {retry("initialBackoff", R"("0s")"), "methodConfig[1].retryPolicy.initialBackoff"},
      {retry("maxBackoff", "null"), "methodConfig[1].retryPolicy.maxBackoff"},
      {retry("backoffMultiplier", "0"), "methodConfig[1].retryPolicy.backoffMultiplier"},
      {retry("retryableStatusCodes", "[]"), "methodConfig[1].retryPolicy.retryableStatusCodes"},
      {retry("retryableStatusCodes", R"(["UNAVAILABLE", "NOPE"])"), "retryPolicy.retryableStatusCodes[1]"},
      {method(R"("hedgingPolicy": {"maxAttempts": 0})"), "methodConfig[1].hedgingPolicy.maxAttempts"},
      {R"({"loadBalancingConfig": [{"a": {}, "b": {}}]})", "loadBalancingConfig[0]"},
      {R"({"loadBalancingConfig": [{"rls": {}}]})", "loadBalancingConfig has no policy"},
      {R"({"loadBalancingPolicy": "rls"})", "loadBalancingPolicy"},
      {R"({"retryThrottling": {"maxTokens": 0, "tokenRatio": 1}})", "retryThrottling.maxTokens"},
      {R"({"retryThrottling": {"maxTokens": 1}})", "retryThrottling.tokenRatio is missing"},
  };
  for (const Case& one : cases) {
    const auto config = ServiceConfig::parse(one.json);
    ASSERT_FALSE(config) << one.json;
    EXPECT_EQ(config.error().code, ErrorCode::invalid_argument);
    EXPECT_TRUE(config.error().text.starts_with("service config: ")) << config.error().text;
    EXPECT_TRUE(config.error().text.contains(one.field)) << config.error().text << " for " << one.json;
  }
  EXPECT_TRUE(parsed(retry("maxAttempts", "2")).find("t/x")->retry) << "the usual values are valid";
  EXPECT_FALSE(ServiceConfig::read_file("/does/not/exist"));
  EXPECT_FALSE(ServiceConfig::parse(std::string(ServiceConfig::bytes_max + 1, ' ')));
}

// The text may come from somebody else, and errors go to a log.
TEST(ServiceConfig, ErrorsEscapeAndCutNames) {
  const std::string name = "\\u001b[31m\\n" + std::string(100'000, 'x');
  const std::string service = R"({"service": ")" + name + R"("})";
  for (const std::string& json : {R"({"methodConfig": [{"name": [)" + service + ", " + service + "]}]}",
                                  R"({"loadBalancingPolicy": ")" + name + R"("})"}) {
    const auto config = ServiceConfig::parse(json);
    ASSERT_FALSE(config);
    EXPECT_LT(config.error().text.size(), 300U);
    EXPECT_TRUE(config.error().text.contains("\\x1b[31m\\x0axxx")) << config.error().text;
  }
}

TEST(ServiceConfig, AStatusCountsOnce) {
  std::string statuses = R"("UNAVAILABLE")";
  for (int i = 0; i < 1000; ++i) statuses += R"(, "UNAVAILABLE")";
  const ServiceConfig config = parsed(
      R"({"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "1s", "maxBackoff": "1s",
          "backoffMultiplier": 1, "retryableStatusCodes": [)" +
      statuses + "]}}]}");
  EXPECT_EQ(config.find("f")->retry->codes.size(), 3U);
  EXPECT_EQ(config.find("f")->retry->application_codes.size(), 1U);
}

// ---- Effects on calls ----

struct Shelf {
  std::string name;
  int& calls;
  Task<Result<std::string>> take(Context& context, Duration time, int failures) {
    ++calls;
    if (calls <= failures) co_return fail(ErrorCode::overloaded, "busy");
    co_await context.loop().sleep(time, context.token());
    co_return name;
  }
};

TEST(ServiceConfig, SetsTheOptionsOfCalls) {
  Simulation simulation(1);
  int calls = 0;
  std::vector<testing::SimServer*> servers;
  for (const std::string host : {"a", "b"}) {
    servers.push_back(&simulation.serve(host + ":1", [host, &calls](Server& server) {
      auto shelf = std::make_unique<Shelf>(Shelf{.name = host, .calls = calls});
      server.register_handler<&Shelf::take>(shelf.get());
      return shelf;
    }));
  }
  simulation.run([](Simulation& on, int& made, std::vector<testing::SimServer*>& both) -> Task<void> {
    const auto client = [](const std::string& fields) {
      std::string name(method_name<&Shelf::take>);
      name.resize(name.rfind("::"));
      return ClusterClient::create(
          "list:a:1,b:1", {.balancing = {.kind = Balancing::round_robin},
                           .service_config = parsed(R"({"methodConfig": [{"name": [{"service": ")" + name + R"("}], )" +
                                                    fields + "}]}")});
    };
    const auto take = [&made](ClusterClient& by, Duration time, int failures) -> Task<Result<std::string>> {
      made = 0;
      const CallOptions options{.idempotent = true};
      co_return co_await by.call<&Shelf::take>(options, time, failures);
    };
    const auto timed = client(R"("timeout": "0.05s")");
    Duration began = on.elapsed();
    const auto late = co_await take(**timed, seconds(1), 0);
    EXPECT_TRUE(!late && late.error().code == ErrorCode::deadline_exceeded);
    EXPECT_LT(on.elapsed() - began, milliseconds(60));

    const auto retried = client(R"("retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s",
        "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]})");
    EXPECT_TRUE(co_await take(**retried, Duration::zero(), 3));
    EXPECT_EQ(made, 4);

    const auto hedged = client(R"("hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "0.01s"})");
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(co_await take(**hedged, Duration::zero(), 0));  // Connects both.
    co_await on.loop().sleep(milliseconds(10));
    EXPECT_TRUE(co_await take(**hedged, milliseconds(30), 0));
    EXPECT_EQ(made, 2);

    for (testing::SimServer* const server : both) server->crash();
    const auto failing = client(R"("timeout": "20s")");
    const auto refused = co_await take(**failing, Duration::zero(), 0);
    EXPECT_TRUE(!refused && refused.error().code == ErrorCode::unavailable) << refused.error().text;
    const auto waiting = client(R"("waitForReady": true, "timeout": "20s")");
    Scope repair;
    repair.spawn([](Simulation& of, std::vector<testing::SimServer*>& stopped) -> Task<void> {
      co_await of.loop().sleep(seconds(8));
      for (testing::SimServer* const server : stopped) server->restart();
    }(on, both));
    EXPECT_TRUE(co_await take(**waiting, Duration::zero(), 0));
  }(simulation, calls, servers));
}

}  // namespace
}  // namespace hawser::cluster
