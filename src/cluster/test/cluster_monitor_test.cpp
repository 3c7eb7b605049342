#include "hawser/cluster_monitor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/cluster_metrics.h"
#include "cluster/test/hand_name.h"
#include "hawser/cluster_client.h"
#include "hawser/scope.h"
#include "hawser/testing.h"
#include "rpc/client/cluster_monitor_state.h"

namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Simulation;

struct Watched {
  std::string name;
  Result<std::string> answer(int call) {
    if (call < 0) return fail(ErrorCode::overloaded, "busy");
    return name;
  }
  Task<std::string> wait(Context& context) {
    static_cast<void>(co_await context.loop().sleep(seconds(100), context.token()));
    co_return name;
  }
};

void serve_watched(Simulation& simulation, const std::string& host) {
  simulation.serve(host + ":1", [host](Server& server) {
    auto service = std::make_unique<Watched>(Watched{host});
    server.register_handler<&Watched::answer>(service.get());
    server.register_handler<&Watched::wait>(service.get());
    return service;
  });
}

Task<rpc::ClusterReports> reports_of(const ClusterMonitor& monitor, std::size_t from = 0, std::size_t limit = 100) {
  return ClusterMonitorAccess::state(monitor)->reports(*Loop::current(), 0, 100, from, limit);
}

std::string text_of(const ClusterMonitor& monitor) { return monitor.metrics().render(MetricFormat::prometheus); }

std::string rows_of(const std::string& text, std::string_view name) {
  std::string rows;
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    if (at == 0 || text[at - 1] == '\n') rows += text.substr(at, text.find('\n', at) - at + 1);
  }
  return rows;
}

TEST(ClusterMonitor, ReportsClientsAndWhyEndpointsGetCalls) {
  Simulation simulation(1);
  simulation.run([](Simulation& in) -> Task<void> {
    serve_watched(in, "a");
    serve_watched(in, "b");
    const ClusterMonitor monitor;
    ClusterOptions options{.balancing = {.kind = Balancing::round_robin}, .monitor = monitor};
    const std::string name = "list:a:1;zone=x,b:1;priority=1,gone:1,late:1;priority=2";
    auto client = ClusterClient::create(name, options);
    EXPECT_TRUE(client);
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(co_await (*client)->call<&Watched::answer>(i));
    const auto found = co_await reports_of(monitor);
    EXPECT_EQ(found.all, 1U);
    EXPECT_EQ(found.silent, 0U);
    EXPECT_EQ(found.found.size(), 1U);
    if (found.found.empty()) co_return;
    const rpc::ClusterReport& report = found.found.front();
    EXPECT_EQ(report.name, name);
    EXPECT_EQ(report.balancing, "round_robin");
    EXPECT_EQ(report.endpoints, 4U);
    EXPECT_EQ(report.ready, 1U);
    EXPECT_EQ(report.failed, 1U);
    EXPECT_EQ(report.idle, 2U);
    EXPECT_TRUE(report.naming.constant && report.naming.version == 1 && report.may_retry);
    EXPECT_EQ(report.rows.size(), 4U);
    if (report.rows.size() != 4) co_return;
    EXPECT_EQ(report.rows[0].standing, "calls");
    EXPECT_EQ(report.rows[0].endpoint.zone, "x");
    EXPECT_TRUE(report.rows[1].standing.starts_with("no call: no connection")) << report.rows[1].standing;
    EXPECT_EQ(report.rows[2].standing, "no call: it cannot be reached");
    EXPECT_FALSE(report.rows[2].error.empty());
    const auto part = co_await reports_of(monitor, 1, 2);
    EXPECT_EQ(part.found.at(0).rows.size(), 2U);
    EXPECT_EQ(part.found.at(0).rows.at(0).endpoint.address, "b:1");
    client->reset();
    const auto none = co_await reports_of(monitor);
    EXPECT_TRUE(none.found.empty() && none.all == 0);
  }(simulation));
}

// In virtual time. Two clients of one name: the older list counts.
TEST(ClusterMonitor, TheAgeOfTheListOfEachNameIsShown) {
  Simulation simulation(1);
  simulation.run([](Simulation&) -> Task<void> {
    Loop& loop = *Loop::current();
    const ClusterMonitor monitor;
    ClusterMonitorAccess::state(monitor)->now = [&loop] { return loop.now(); };
    const auto age = [&monitor] {
      const std::string_view row = "hawser_cluster_list_age_seconds{grpc_target=\"hand:x\"} ";
      const std::string rows = rows_of(text_of(monitor), "hawser_cluster_list_age_seconds{");
      if (rows.empty()) return -1.0;
      EXPECT_TRUE(rows.starts_with(row) && std::ranges::count(rows, '\n') == 1) << rows;
      return std::stod(rows.substr(row.size()));
    };
    HandName first;
    HandName second;
    ClusterOptions options{.monitor = monitor};
    options.naming = {first.scheme()};
    auto client = ClusterClient::create("hand:x", options);
    options.naming = {second.scheme()};
    auto other = ClusterClient::create("hand:x", options);
    options.naming = default_naming();
    const auto constant = ClusterClient::create("list:a:1", options);
    EXPECT_TRUE(client && other && constant);
    first.sink->on_confirmed();
    co_await loop.sleep(seconds(1));
    EXPECT_EQ(age(), -1) << "no list yet, and one that never changes";
    first.sink->on_endpoints({{.address = "a:1"}});
    co_await loop.sleep(seconds(10));
    second.sink->on_endpoints({{.address = "a:1"}});
    co_await loop.sleep(seconds(5));
    EXPECT_NEAR(age(), 15, 0.01);
    first.sink->on_failure(Error::of_call(ErrorCode::unavailable, "no answer"));
    first.sink->on_endpoints({});
    co_await loop.sleep(seconds(1));
    EXPECT_NEAR(age(), 16, 0.01) << "the last good one ages";
    first.sink->on_endpoints({{.address = "a:1"}});
    EXPECT_NEAR(age(), 6, 0.01) << "the same list again";
    second.sink->on_confirmed();
    co_await loop.sleep(seconds(2));
    EXPECT_NEAR(age(), 2, 0.01);
    client->reset();
    other->reset();
    EXPECT_EQ(age(), -1);
  }(simulation));
}

// The report was posted to its loop before its end.
TEST(ClusterMonitor, AClientThatHasEndedIsNotReported) {
  Simulation simulation(1);
  simulation.run([](Simulation&) -> Task<void> {
    const ClusterMonitor monitor;
    auto client = ClusterClient::create("list:a:1", {.monitor = monitor});
    EXPECT_TRUE(client);
    Scope scope;
    scope.spawn([](const ClusterMonitor& of) -> Task<void> {
      const auto reports = co_await reports_of(of);
      EXPECT_EQ(reports.all, 1U) << "it is asked before it ends";
      EXPECT_TRUE(reports.found.empty() && reports.silent == 0);
    }(monitor));
    client->reset();
    co_await scope.join();
  }(simulation));
}

TEST(ClusterMonitor, AnswersSayWhichClientIsNext) {
  Simulation simulation(1);
  simulation.run([](Simulation&) -> Task<void> {
    const ClusterMonitor monitor;
    std::vector<std::unique_ptr<ClusterClient>> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(*ClusterClient::create("list:a:1", {.monitor = monitor}));
    const auto& state = ClusterMonitorAccess::state(monitor);
    EXPECT_EQ((co_await state->reports(*Loop::current(), 0, 2, 0, 0)).next, 3U);
    EXPECT_EQ((co_await state->reports(*Loop::current(), 3, 2, 0, 0)).next, 0U);
  }(simulation));
}

TEST(ClusterMonitor, ALoopThatHasEndedIsNotAsked) {
  const ClusterMonitor monitor;
  std::unique_ptr<ClusterClient> client;
  {
    Simulation ended(1);
    ended.run([](const ClusterMonitor& in, std::unique_ptr<ClusterClient>& to) -> Task<void> {
      auto created = ClusterClient::create("list:a:1", {.monitor = in});
      EXPECT_TRUE(created);
      if (created) to = std::move(*created);
      co_return;
    }(monitor, client));
  }
  Simulation(2).run([](const ClusterMonitor& of) -> Task<void> {
    const auto reports = co_await reports_of(of);
    EXPECT_EQ(reports.all, 0U);
  }(monitor));
}

// The text of such a method ends with its call.
TEST(ClusterMonitor, MethodsThatAreKnownAtRunTimeAreCountedOneByOne) {
  Simulation simulation(1);
  simulation.run([](Simulation& in) -> Task<void> {
    serve_watched(in, "a");
    const ClusterMonitor monitor;
    auto client = ClusterClient::create("list:a:1", {.monitor = monitor});
    EXPECT_TRUE(client);
    const auto use = [](Client& by, const CallOptions& with) -> Task<Result<void>> {
      const auto reply = co_await by.call<&Watched::answer>(with, 1);
      if (!reply) co_return std::unexpected(reply.error());
      co_return Result<void>();
    };
    for (int i = 0; i < 100; ++i) {
      for (const char* const name : {"shop.Cart/TheFirstMethod", "shop.Cart/TheOtherMethod"}) {
        EXPECT_TRUE(co_await (*client)->send_request(std::string(name), {}, use));
      }
    }
    const std::string text = text_of(monitor);
    EXPECT_TRUE(text.contains("TheFirstMethod\",grpc_target=\"list:a:1\"} 100\n")) << text;
    EXPECT_TRUE(text.contains("TheOtherMethod\",grpc_target=\"list:a:1\"} 100\n")) << text;
    EXPECT_FALSE(text.contains("grpc_method=\"other\"")) << text;
  }(simulation));
}

TEST(ClusterMonitor, CountsAttemptsConnectionsAndEndpoints) {
  Simulation simulation(1);
  simulation.run([](Simulation& in) -> Task<void> {
    serve_watched(in, "a");
    const ClusterMonitor monitor;
    ClusterOptions options{.retry = {.attempts_max = 2}, .monitor = monitor};
    auto client = ClusterClient::create("list:a:1", options);
    EXPECT_TRUE(client);
    ClusterClient& by = **client;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(co_await by.call<&Watched::answer>(i));
    EXPECT_FALSE(co_await by.call<&Watched::answer>(-1));
    EXPECT_FALSE(co_await by.call<&Watched::wait>(CallOptions{.timeout = milliseconds(5)}));
    const std::string text = text_of(monitor);
    const std::string started = rows_of(text, "grpc_client_attempt_started_total{");
    EXPECT_TRUE(started.contains("Watched::answer\",grpc_target=\"list:a:1\"} 5\n")) << started;
    EXPECT_TRUE(started.contains("Watched::wait\",grpc_target=\"list:a:1\"} 1\n")) << started;
    const std::string ended = rows_of(text, "grpc_client_attempt_duration_seconds_count{");
    EXPECT_TRUE(ended.contains("answer\",grpc_target=\"list:a:1\",grpc_status=\"OK\"} 3\n")) << ended;
    EXPECT_TRUE(ended.contains("answer\",grpc_target=\"list:a:1\",grpc_status=\"RESOURCE_EXHAUSTED\"} 2\n")) << ended;
    EXPECT_TRUE(ended.contains("wait\",grpc_target=\"list:a:1\",grpc_status=\"DEADLINE_EXCEEDED\"} 1\n")) << ended;
    EXPECT_TRUE(text.contains("grpc_subchannel_connection_attempts_succeeded_total{grpc_target=\"list:a:1\"} 1\n"));
    EXPECT_TRUE(text.contains("hawser_cluster_endpoints{grpc_target=\"list:a:1\",state=\"ready\"} 1\n")) << text;
    client->reset();
    EXPECT_TRUE(text_of(monitor).contains("hawser_cluster_endpoints{grpc_target=\"list:a:1\",state=\"ready\"} 0\n"));
  }(simulation));
}

TEST(ClusterMonitor, CountsCallsWithTheirAttemptsAndPauses) {
  Simulation simulation(1);
  simulation.run([](Simulation& in) -> Task<void> {
    serve_watched(in, "a");
    const ClusterMonitor monitor;
    const RetryPolicy retry{.backoff_first = seconds(2), .backoff_max = seconds(2), .jitter = 0};
    auto client = ClusterClient::create("list:a:1", {.retry = retry, .monitor = monitor});
    EXPECT_TRUE(client);
    ClusterClient& by = **client;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(co_await by.call<&Watched::answer>(i));
    EXPECT_FALSE(co_await by.call<&Watched::answer>(-1));
    EXPECT_FALSE(co_await by.call<&Watched::wait>(CallOptions{.timeout = milliseconds(5)}));
    Scope scope;  // The caller ends before the result.
    scope.spawn([](ClusterClient& of) -> Task<void> {
      static_cast<void>(co_await of.call<&Watched::wait>(CallOptions{.timeout = seconds(100)}));
    }(by));
    static_cast<void>(co_await Loop::current()->sleep(seconds(1)));
    scope.clear();
    const std::string text = text_of(monitor);
    const std::string counts = rows_of(text, "grpc_client_call_duration_seconds_count{");
    EXPECT_TRUE(counts.contains("answer\",grpc_target=\"list:a:1\",grpc_status=\"OK\"} 3\n")) << counts;
    EXPECT_TRUE(counts.contains("answer\",grpc_target=\"list:a:1\",grpc_status=\"RESOURCE_EXHAUSTED\"} 1\n")) << counts;
    EXPECT_TRUE(counts.contains("wait\",grpc_target=\"list:a:1\",grpc_status=\"DEADLINE_EXCEEDED\"} 1\n")) << counts;
    EXPECT_TRUE(counts.contains("wait\",grpc_target=\"list:a:1\",grpc_status=\"CANCELLED\"} 1\n")) << counts;
    const std::string sums = rows_of(text, "grpc_client_call_duration_seconds_sum{");
    EXPECT_TRUE(sums.contains("grpc_status=\"RESOURCE_EXHAUSTED\"} 4")) << "two pauses of 2 s:\n" << sums;
    EXPECT_TRUE(rows_of(text, "grpc_client_call_retries_count{").ends_with("answer\",grpc_target=\"list:a:1\"} 1\n"));
    EXPECT_TRUE(rows_of(text, "grpc_client_call_retries_sum{").ends_with("answer\",grpc_target=\"list:a:1\"} 2\n"));
    const std::string pauses = rows_of(text, "grpc_client_call_retry_delay_seconds_sum{");
    EXPECT_TRUE(pauses.contains("answer\",grpc_target=\"list:a:1\"} 4.")) << "two pauses of 2 s:\n" << pauses;
    EXPECT_FALSE(text.contains("grpc_client_call_hedges")) << "no call has copies";
  }(simulation));
}

TEST(ClusterMonitor, CountsCopies) {
  Simulation simulation(1);
  simulation.run([](Simulation& in) -> Task<void> {
    for (const char* const host : {"a", "b", "c"}) serve_watched(in, host);
    const ClusterMonitor monitor;
    auto client = ClusterClient::create(
        "list:a:1,b:1,c:1",
        {.hedging = {.attempts_max = 3, .delay = milliseconds(10), .budget = 1}, .monitor = monitor});
    EXPECT_TRUE(client);
    ClusterClient& by = **client;
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(co_await by.call<&Watched::answer>(i)) << "they connect";
    for (int i = 0; i < 2; ++i) {
      const CallOptions options{.timeout = milliseconds(15), .idempotent = true};
      EXPECT_FALSE(co_await by.call<&Watched::wait>(options));
    }
    const std::string text = text_of(monitor);
    EXPECT_TRUE(
        rows_of(text, "grpc_client_call_hedges_count{").ends_with("wait\",grpc_target=\"list:a:1,b:1,c:1\"} 2\n"))
        << rows_of(text, "grpc_client_call_hedges");
    EXPECT_TRUE(rows_of(text, "grpc_client_call_hedges_sum{").ends_with("wait\",grpc_target=\"list:a:1,b:1,c:1\"} 2\n"))
        << "one for each call, before its deadline";
  }(simulation));
}

TEST(ClusterMonitor, MetricsAreBounded) {
  const ClusterMonitor monitor;
  MetricRegistry& registry = ClusterMonitorAccess::state(monitor)->metrics;
  std::vector<std::string> methods;
  for (int i = 0; i < 1000; ++i) methods.push_back("method" + std::to_string(i));
  ClusterMetrics metrics(registry, "list:a:1");
  for (const std::string& method : methods) {
    metrics.begin_attempt(method);
    for (std::int32_t status = 0; status < statuses_count; ++status) {
      metrics.end_attempt(method, status, seconds(1));
      metrics.end_call(method, status, {.time = seconds(1), .retries = 1});
    }
  }
  const std::string text = text_of(monitor);
  EXPECT_TRUE(
      text.contains("grpc_client_attempt_started_total{grpc_method=\"method99\",grpc_target=\"list:a:1\"} 1\n"));
  EXPECT_TRUE(text.contains("grpc_client_attempt_started_total{grpc_method=\"other\",grpc_target=\"list:a:1\"} 900\n"));
  EXPECT_FALSE(text.contains("method100"));
  for (const char* const metric : {"grpc_client_attempt_duration_seconds", "grpc_client_call_duration_seconds"}) {
    const auto series = std::ranges::count(rows_of(text, std::string(metric) + "_count{"), '\n');
    EXPECT_EQ(series, ClusterMonitor::series_max + 1) << metric << ": one for those beyond the bound";
  }
  const std::string retries = rows_of(text, "grpc_client_call_retries_sum{");
  EXPECT_EQ(std::ranges::count(retries, '\n'), ClusterMonitor::methods_max + 1);
  EXPECT_TRUE(retries.contains("{grpc_method=\"other\",grpc_target=\"list:a:1\"} 15300\n")) << retries;
}

TEST(ClusterMonitor, ExclusionsAreCountedByTheirRule) {
  const ClusterMonitor monitor;
  ClusterMetrics metrics(ClusterMonitorAccess::state(monitor)->metrics, "list:a:1");
  Ejections ejections;
  ejections.enforced = {0, 2};
  ejections.unenforced = {3, 0};
  metrics.note_ejections(ejections);
  const std::string text = text_of(monitor);
  const std::string prefix = "grpc_lb_outlier_detection_ejections_";
  const std::string rule = R"({grpc_target="list:a:1",grpc_lb_outlier_detection_detection_method=)";
  EXPECT_TRUE(text.contains(prefix + "enforced_total" + rule + R"("failure_percentage"} 2)")) << text;
  EXPECT_TRUE(text.contains(prefix + "unenforced_total" + rule + R"("success_rate"} 3)"));
}

TEST(StatusNames, ErrorsHaveTheStatusesOfGrpc) {
  EXPECT_EQ(status_of(nullptr, false), 0);
  EXPECT_EQ(name_of_status(0), "OK");
  for (const auto& [code, name] : {std::pair{ErrorCode::overloaded, "RESOURCE_EXHAUSTED"},
                                   {ErrorCode::outcome_unknown, "UNAVAILABLE"},
                                   {ErrorCode::cancelled, "CANCELLED"},
                                   {ErrorCode::unauthenticated, "UNAUTHENTICATED"}}) {
    const Error error = Error::of_call(code, "");
    EXPECT_EQ(name_of_status(status_of(&error, false)), name);
  }
  Error own = Error::application(5, "");
  EXPECT_EQ(name_of_status(status_of(&own, true)), "NOT_FOUND");
  EXPECT_EQ(name_of_status(status_of(&own, false)), "UNKNOWN") << "the application's own number";
  own.application_code = 99;
  EXPECT_EQ(name_of_status(status_of(&own, true)), "UNKNOWN");
}

}  // namespace
}  // namespace hawser::cluster
