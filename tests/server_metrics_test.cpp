// The counters of a server, as samples of a registry.
#include "hawser/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "hawser/hawser.h"
#include "tests/testing.h"

namespace hawser::server_metrics_test {

using namespace testing_tools;
using testing::HasSubstr;

std::string echo(std::string text) { return text; }

TEST(ServerMetrics, CountersOfAServerAreSamplesWhileItIsRegistered) {
  MetricRegistry registry;
  Server server({.listen = "127.0.0.1:0"});
  server.register_handler<echo>();
  ASSERT_TRUE(server.start());
  const std::shared_ptr<void> registration = collect_metrics(registry, server, {{"port", "main"}});
  sync_wait([](std::string address) -> Task<void> {
    Client client({.transports = {.required = "stream"}});
    AWAIT(connected, client.connect(address));
    REQUIRE_OK(connected);
    for (int i = 0; i < 3; ++i) {
      AWAIT(reply, client.call<echo>("x"));
      REQUIRE_OK(reply);
    }
  }(server.address()));
  const std::string text = registry.render(MetricFormat::openmetrics);
  EXPECT_THAT(text, HasSubstr("hawser_server_calls_total{port=\"main\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("hawser_server_connections_accepted_total{port=\"main\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("# UNIT hawser_server_receive_bytes bytes\n"));
  server.stop();
  EXPECT_THAT(registry.render(MetricFormat::openmetrics), HasSubstr("hawser_server_calls_total{port=\"main\"} 3\n"));
}

TEST(ServerMetrics, EndWithTheirRegistration) {
  MetricRegistry registry;
  {
    Server server;
    const std::shared_ptr<void> registration = collect_metrics(registry, server);
    EXPECT_THAT(registry.render(MetricFormat::prometheus), HasSubstr("hawser_server_calls_total 0\n"));
  }
  EXPECT_EQ(registry.render(MetricFormat::prometheus), "");
}

}  // namespace hawser::server_metrics_test
