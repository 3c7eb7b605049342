#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cluster/test/hand_name.h"
#include "hawser/cluster_client.h"
#include "hawser/scope.h"
#include "hawser/testing.h"

// Service configs that come with a name.
namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using testing::Simulation;

Task<int> answer_slowly(Context& context) {
  co_await context.loop().sleep(milliseconds(20));
  co_return 1;
}

// A name with one endpoint, whose service config the test sets.
class ConfiguredName {
 public:
  ConfiguredName() { name_.endpoints = {{.address = "a:1"}}; }
  ClusterOptions options() { return {.naming = {name_.scheme()}}; }
  void set(Result<std::string> json) { name_.sink->on_service_config(std::move(json)); }

 private:
  HandName name_;
};

template <class Body>
void with_server(Body body) {
  Simulation simulation(1, {});
  simulation.run([](Simulation& of, Body& with) -> Task<void> {
    of.serve("a:1", [](Server& server) {
      server.register_handler<answer_slowly>();
      return std::make_unique<int>(0);
    });
    co_await with();
  }(simulation, body));
}

constexpr const char* short_timeout = R"({"methodConfig": [{"name": [{}], "timeout": "0.005s"}]})";

Task<std::optional<ErrorCode>> code_of_call(ClusterClient& client) {
  const Result<int> result = co_await client.call<answer_slowly>();
  if (result) co_return std::nullopt;
  co_return result.error().code;
}

TEST(NameConfigs, ApplyToCallsAndChange) {
  with_server([]() -> Task<void> {
    ConfiguredName name;
    const auto client = ClusterClient::create("hand:x", name.options());
    EXPECT_TRUE(client);
    EXPECT_EQ(co_await code_of_call(**client), std::nullopt);
    name.set(std::string(short_timeout));
    EXPECT_EQ(co_await code_of_call(**client), ErrorCode::deadline_exceeded);
    // One that is malformed or unknown leaves the last one.
    name.set(std::string(R"({"methodConfig": 1})"));
    EXPECT_EQ((*client)->naming().service_config_error, "service config: methodConfig must be a list");
    EXPECT_EQ(co_await code_of_call(**client), ErrorCode::deadline_exceeded);
    name.set(fail(ErrorCode::unavailable, "no answer"));
    EXPECT_EQ((*client)->naming().service_config_error, "no answer");
    EXPECT_EQ(co_await code_of_call(**client), ErrorCode::deadline_exceeded);
    name.set(std::string(short_timeout));
    EXPECT_EQ((*client)->naming().service_config_error, "");
    name.set(std::string());
    EXPECT_EQ((*client)->naming().service_config, nullptr);
    EXPECT_EQ(co_await code_of_call(**client), std::nullopt);
  });
}

TEST(NameConfigs, ACallKeepsTheOneWithWhichItHasBegun) {
  with_server([]() -> Task<void> {
    ConfiguredName name;
    const auto client = ClusterClient::create("hand:x", name.options());
    EXPECT_TRUE(client);
    name.set(std::string(short_timeout));
    Scope calls;
    std::optional<ErrorCode> code;
    calls.spawn([](ClusterClient& by, std::optional<ErrorCode>& out) -> Task<void> { out = co_await code_of_call(by); }(
                                                                         **client, code));
    name.set(std::string());
    co_await calls.join();
    EXPECT_EQ(code, ErrorCode::deadline_exceeded);
  });
}

TEST(NameConfigs, ThatOfTheProgramComesFirst) {
  with_server([]() -> Task<void> {
    ConfiguredName name;
    ClusterOptions options = name.options();
    auto own = ServiceConfig::parse(R"({"methodConfig": [{"name": [{}], "timeout": "100s"}]})");
    EXPECT_TRUE(own);
    options.service_config = std::move(*own);
    const auto client = ClusterClient::create("hand:x", std::move(options));
    EXPECT_TRUE(client);
    name.set(std::string(short_timeout));
    EXPECT_EQ(co_await code_of_call(**client), std::nullopt);
  });
}

}  // namespace
}  // namespace hawser::cluster
