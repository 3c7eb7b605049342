#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <stdexcept>
#include <string>

#include "hawser/grpc_client.h"
#include "hawser/grpc_load_reports.h"
#include "hawser/hawser.h"
#include "rpc/port/load_report_message.h"
#include "tests/grpc/raw_service.h"
#include "tests/grpc/raw_stubs.h"
#include "tests/testing.h"

// Reports of load (ORCA) beside results, and on demand.
namespace hawser {
namespace {

using namespace testing_tools;

template <class Make>
std::string text_of_refusal(Make make) {
  try {
    static_cast<void>(make());
  } catch (const std::invalid_argument& refused) {
    return refused.what();
  }
  return {};
}

std::optional<LoadReport> report_beside(const CallOutcome& outcome) {
  for (const auto& [name, value] : outcome.metadata) {
    if (name == LoadReports::metadata_name) return rpc::read_load_report(value);
  }
  return std::nullopt;
}

Task<void> use_reports(GrpcClient& client, std::string address, const LoadReports& load) {
  auto connected = co_await client.connect(address);
  REQUIRE(connected.has_value());
  load.set_application_utilization(0.25);
  load.set_memory_utilization(0.5);
  auto ended = co_await client.call<&remote::echo>(Raw{"x"}).with_outcome();
  REQUIRE(ended.result.has_value());
  const auto beside = report_beside(ended.outcome);
  REQUIRE(beside.has_value());
  EXPECT_EQ(beside->application_utilization, 0.25);
  EXPECT_EQ(beside->memory_utilization, 0.5);
  // The first report comes at once, and the next ones in the interval.
  auto watching = co_await client.open<&rpc::stream_core_metrics>(
      CallOptions{}, rpc::LoadReportBytes{rpc::load_report_request(std::chrono::milliseconds(1))});
  REQUIRE(watching.has_value());
  auto reader = watching->reader();
  for (const double part : {0.5, 0.75}) {
    load.set_application_utilization(part);
    std::optional<LoadReport> report;
    while (!report || report->application_utilization != part) {
      auto next = co_await reader.next();
      REQUIRE(next.has_value() && next->has_value());
      report = rpc::read_load_report((*next)->bytes);
      REQUIRE(report.has_value());
    }
  }
}

TEST(GrpcLoadReports, ComeBesideResultsAndOnDemand) {
  Server server;
  const LoadReports load;
  server.use(load);
  const GrpcLoadReports service(server, load, {.interval_min = std::chrono::milliseconds(1)});
  register_raw_service(server);
  server.enable(grpc());
  ASSERT_TRUE(server.start());
  Loop loop;
  GrpcClient client(loop);
  loop.run(use_reports(client, server.address(), load));
}

// Rates are those of the calls of the last interval.
TEST(GrpcLoadReports, CountCallsAndErrors) {
  Server server;
  const LoadReports load({.interval = std::chrono::milliseconds(10)});
  server.use(load);
  register_raw_service(server);
  server.enable(grpc());
  ASSERT_TRUE(server.start());
  Loop loop;
  GrpcClient client(loop);
  loop.run([](GrpcClient& used, std::string address, const LoadReports& of) -> Task<void> {
    auto connected = co_await used.connect(address);
    REQUIRE(connected.has_value());
    const auto counted = [&] { return of.report(Loop::current()->now()).calls_per_second > 0; };
    while (!counted()) {
      auto echoed = co_await used.call<&remote::echo>(Raw{"x"});
      REQUIRE(echoed.has_value());
    }
    EXPECT_EQ(of.report(Loop::current()->now()).errors_per_second, 0);
    while (of.report(Loop::current()->now()).errors_per_second == 0) {
      auto failed = co_await used.call<&remote::fail>(Raw{"14x"});
      EXPECT_FALSE(failed);
    }
  }(client, server.address(), load));
}

TEST(GrpcLoadReports, RefuseOptionsAndValuesOutOfRange) {
  EXPECT_EQ(text_of_refusal([] { return LoadReports({.interval = Duration()}); }),
            "hawser: LoadReportOptions::interval is 0s, and must be from 1 ms to 24 h");
  const LoadReports load;
  EXPECT_THROW(load.set_application_utilization(-1), std::invalid_argument);
  EXPECT_THROW(load.set_application_utilization(std::numeric_limits<double>::quiet_NaN()), std::invalid_argument);
  EXPECT_THROW(load.set_memory_utilization(1.5), std::invalid_argument);
  Server server;
  EXPECT_EQ(text_of_refusal([&] { return GrpcLoadReports(server, load, {.interval_min = Duration()}); }),
            "hawser: GrpcLoadReportOptions::interval_min is 0s, and must be at least 1 ms");
}

}  // namespace
}  // namespace hawser
