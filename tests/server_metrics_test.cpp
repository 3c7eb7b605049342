// The counters of a server, as samples of a registry.
#include "hawser/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

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
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    for (int i = 0; i < 3; ++i) {
      auto reply = co_await client.call<echo>("x");
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

Result<std::string> refuse(std::string) { return fail(ErrorCode::overloaded, "no"); }
Task<Result<std::string>> later(Context& context, std::string text) {
  co_await context.loop().sleep(1ms);
  if (text == "fail") co_return std::unexpected(Error::application(7, "failed"));
  co_return text;
}
Task<std::string> at_once(std::string text) { co_return text; }
Task<void> wait(Context& context) { static_cast<void>(co_await context.loop().sleep(1h, context.token())); }
std::string block(std::string text) { return text; }
std::string never() { return ""; }

// The value of the line that begins with `series`; -1 if there is none.
double value_of(const std::string& text, const std::string& series) {
  const std::size_t at = ("\n" + text).find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 1));
}

std::uint32_t sleep_here(std::uint32_t ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return ms;
}

// The loop's own readings of its clock measure calls that are answered in place.
TEST(ServerMetrics, CallsThatBlockTheLoopHaveTheirTime) {
  for (const std::string transport : {"stream", "shm"}) {
    for (const Wait wait : {Wait::spin, Wait::event}) {
      MetricRegistry registry;
      ServerOptions options;
      options.listen = "127.0.0.1:0";
      options.loop.wait = wait;
      Server server(options);
      server.register_handler<sleep_here>();
      ASSERT_TRUE(server.start());
      const std::shared_ptr<void> registration = collect_metrics(registry, server);
      sync_wait([](std::string address, std::string name, const MetricRegistry& metrics) -> Task<void> {
        Client client({.transports = {.required = name}});
        auto connected = co_await client.connect(address);
        REQUIRE_OK(connected);
        for (int i = 1; i <= 5; ++i) {
          auto done = co_await client.call<sleep_here>(20U);
          REQUIRE_OK(done);
          auto quick = co_await client.call<sleep_here>(0U);
          REQUIRE_OK(quick);
          // The times are counted when the loop has read its clock, which may be after the reply.
          auto counted = co_await eventually(*Loop::current(), [&] {
            return value_of(metrics.render(MetricFormat::prometheus),
                            "hawser_server_call_duration_seconds_count{method=\"hawser::server_metrics_test::"
                            "sleep_here\"}") == 2 * i;
          });
          EXPECT_TRUE(counted);
        }
      }(server.address(), transport, registry));
      EXPECT_GE(value_of(registry.render(MetricFormat::prometheus),
                         "hawser_server_call_duration_seconds_sum{method=\"hawser::server_metrics_test::sleep_here\"}"),
                5 * 0.020)
          << transport;
      EXPECT_GE(value_of(registry.render(MetricFormat::prometheus), "hawser_loop_busy_seconds_total{loop=\"0\"}"),
                5 * 0.020)
          << transport;
    }
  }
}

TEST(ServerMetrics, EveryMethodHasOutcomesBytesAndTimes) {
  MetricRegistry registry;
  Server server({.listen = "127.0.0.1:0", .threads = 2});
  server.register_handler<echo, refuse, later, at_once, wait, never>();
  server.register_handler<block>({.offload = true});
  ASSERT_TRUE(server.start());
  const std::shared_ptr<void> registration = collect_metrics(registry, server);
  const auto render = [&] { return registry.render(MetricFormat::prometheus); };
  sync_wait([](std::string address, decltype(render) text) -> Task<void> {
    for (int connection = 0; connection < 2; ++connection) {  // One on each loop.
      Client client({.transports = {.required = "stream"}});
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      for (int i = 0; i < 40; ++i) {
        auto reply = co_await client.call<echo>(std::string(100, 'x'));
        REQUIRE_OK(reply);
      }
      auto refused = co_await client.call<refuse>("x");
      EXPECT_FALSE(refused);
      auto late = co_await client.call<later>("x");
      REQUIRE_OK(late);
      auto failed = co_await client.call<later>("fail");
      EXPECT_FALSE(failed);
      auto quick = co_await client.call<at_once>("x");
      REQUIRE_OK(quick);
      auto blocked = co_await client.call<block>("x");
      REQUIRE_OK(blocked);
      Loop& loop = *Loop::current();
      {
        Scope scope;
        auto waits = [](Client& of) -> Task<void> {
          auto reply = co_await of.call<wait>();
          EXPECT_FALSE(reply);
        };
        scope.spawn(waits(client));
        const std::string active = "hawser_server_method_calls_in_flight{method=\"hawser::server_metrics_test::wait\"}";
        auto seen = co_await eventually(loop, [&] { return value_of(text(), active) == 1; });
        EXPECT_TRUE(seen);
        client.close();
        while (!scope.empty()) {
          co_await loop.sleep(1ms);
        }
        auto ended = co_await eventually(loop, [&] { return value_of(text(), active) == 0; });
        EXPECT_TRUE(ended);
      }
    }
  }(server.address(), render));
  const std::string text = render();
  const auto calls = [&](const std::string& method, const std::string& code) {
    return value_of(text, "hawser_server_method_calls_total{method=\"hawser::server_metrics_test::" + method +
                              "\",code=\"" + code + "\"}");
  };
  EXPECT_EQ(calls("echo", "ok"), 80);
  EXPECT_EQ(calls("refuse", "overloaded"), 2);
  EXPECT_EQ(calls("refuse", "ok"), -1);
  EXPECT_EQ(calls("later", "ok"), 2);
  EXPECT_EQ(calls("later", "application"), 2);
  EXPECT_EQ(calls("at_once", "ok"), 2);
  EXPECT_EQ(calls("block", "ok"), 2);
  EXPECT_EQ(calls("never", "ok"), -1);
  const std::string echo_labels = "{method=\"hawser::server_metrics_test::echo\"}";
  EXPECT_EQ(value_of(text, "hawser_server_call_duration_seconds_count" + echo_labels), 80);
  EXPECT_GE(value_of(text, "hawser_server_method_request_bytes_total" + echo_labels), 80 * 100);
  EXPECT_GE(value_of(text, "hawser_server_method_reply_bytes_total" + echo_labels), 80 * 100);
  EXPECT_GT(value_of(text, "hawser_server_call_duration_seconds_sum{method=\"hawser::server_metrics_test::later\"}"),
            0.001);  // Two of the four take 1 ms or longer; each is measured by ticks.
  EXPECT_GT(value_of(text, "hawser_loop_ticks_total{loop=\"1\"}"), 0);
  EXPECT_GT(value_of(text, "hawser_loop_busy_seconds_total{loop=\"0\"}"), 0);
}

Result<std::uint16_t> fail_as(std::uint16_t code) { return fail(static_cast<ErrorCode>(code), "no"); }

TEST(ServerMetrics, RefusalsOfCallersHaveTheirOwnCodes) {
  MetricRegistry registry;
  Server server({.listen = "127.0.0.1:0"});
  server.register_handler<fail_as>();
  ASSERT_TRUE(server.start());
  const std::shared_ptr<void> registration = collect_metrics(registry, server);
  sync_wait([](std::string address) -> Task<void> {
    Client client({.transports = {.required = "stream"}});
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    for (const ErrorCode code : {ErrorCode::stale_handle, ErrorCode::permission_denied, ErrorCode::unauthenticated}) {
      auto reply = co_await client.call<fail_as>(static_cast<std::uint16_t>(code));
      EXPECT_FALSE(reply);
    }
  }(server.address()));
  const std::string text = registry.render(MetricFormat::prometheus);
  for (const std::string code : {"stale_handle", "permission_denied", "unauthenticated"}) {
    EXPECT_EQ(
        value_of(text, "hawser_server_method_calls_total{method=\"hawser::server_metrics_test::fail_as\",code=\"" +
                           code + "\"}"),
        1);
  }
  EXPECT_EQ(to_string(static_cast<ErrorCode>(static_cast<int>(ErrorCode::unauthenticated) + 1)), "unknown_code");
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
