#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cluster/test/hand_name.h"
#include "hawser/cluster_client.h"
#include "hawser/testing.h"

// A cluster under random faults, by seed. HAWSER_TEST_SEEDS=1000000 runs a million of them.
namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::SimServer;
using testing::Simulation;

constexpr int faulty_servers = 12;
// From the end of the faults on. The longest pause between attempts to connect is 5 s, and an endpoint that was
// excluded returns after at most 30 s; the others serve then.
constexpr Duration recovery_time_max = seconds(10);

// The servers of a run write it. It survives their crashes.
struct FaultRecord {
  std::map<int, int> executions;       // By call.
  std::map<std::string, bool> gray;    // The server accepts calls and does not answer.
  std::map<std::string, bool> loaded;  // The server refuses calls.
  int requests = 0;
};

struct FaultyService {
  std::string name;
  FaultRecord& record;

  Task<Result<std::string>> serve(Context& context, int call, int work_us) {
    ++record.requests;
    if (record.loaded[name]) co_return fail(ErrorCode::overloaded, "this server is overloaded");
    ++record.executions[call];
    if (record.gray[name]) {
      CO_TRY(co_await context.loop().sleep(seconds(1000), context.token()));
    }
    co_await context.loop().sleep(std::chrono::microseconds(work_us));
    co_return name;
  }
};

// Servers, a name of which they are the list, and its client.
class FaultyCluster {
 public:
  explicit FaultyCluster(Simulation& simulation) : simulation_(simulation) {
    for (int i = 0; i < faulty_servers; ++i) {
      hosts_.push_back("s" + std::to_string(i));
      const std::string& host = hosts_.back();
      servers_.push_back(&simulation_.serve(host + ":1", [host, &of = record](Server& server) {
        auto service = std::make_unique<FaultyService>(FaultyService{.name = host, .record = of});
        server.register_handler<&FaultyService::serve>(service.get());
        return service;
      }));
    }
    hand_.endpoints = list_of(faulty_servers);
    constexpr std::array<Balancing, 4> kinds = {Balancing::p2c, Balancing::round_robin, Balancing::least_request,
                                                Balancing::ring_hash};
    auto created = ClusterClient::create("hand:x", {.balancing = {.kind = kinds[simulation_.below(kinds.size())]},
                                                    .retry_budget = budget,
                                                    .naming = {hand_.scheme()},
                                                    .seed = simulation_.seed()});
    simulation_.require(created.has_value(), "the client is made");
    client = std::move(*created);
  }

  void begin_fault() {
    const std::size_t at = simulation_.below(servers_.size());
    const std::string& host = hosts_[at];
    SimServer& server = *servers_[at];
    switch (simulation_.below(10)) {
      case 0:
        if (server.running()) server.crash();
        break;
      case 1:
        if (server.running()) server.crash(testing::Crash::machine);
        break;
      case 2: record.gray[host] = true; break;
      case 3: record.loaded[host] = true; break;
      case 4: simulation_.partition(host); break;
      case 5: simulation_.reset_connections(host); break;
      case 6: simulation_.partition_one_way(host, ""); break;  // It executes calls, and its answers do not arrive.
      case 7: simulation_.partition_one_way("", host); break;  // Its answers arrive, and calls do not.
      case 8: hand_.sink->on_failure(Error::of_call(ErrorCode::unavailable, "the registry is down")); break;
      default: hand_.sink->on_endpoints(list_of(1 + simulation_.below(faulty_servers))); break;
    }
  }
  void end_faults() {
    record.gray.clear();
    record.loaded.clear();
    simulation_.end_partitions();
    for (SimServer* const server : servers_) {
      if (!server->running()) server->restart();
    }
    hand_.sink->on_endpoints(list_of(faulty_servers));
  }

  FaultRecord record;
  const std::shared_ptr<RetryBudget> budget = std::make_shared<RetryBudget>(20, 0.1);
  std::unique_ptr<ClusterClient> client;

 private:
  // Some of the servers, at least one.
  std::vector<Endpoint> list_of(std::size_t count) {
    std::vector<Endpoint> list;
    const std::size_t first = simulation_.below(hosts_.size());
    for (std::size_t i = 0; i < count; ++i) list.push_back({.address = hosts_[(first + i) % hosts_.size()] + ":1"});
    return list;
  }

  Simulation& simulation_;
  std::vector<std::string> hosts_;
  std::vector<SimServer*> servers_;
  HandName hand_;
};

struct FaultyCalls {
  int begun = 0;
  int ended = 0;
  int succeeded = 0;
};

Task<void> call_in_faults(FaultyCluster& of, FaultyCalls& calls, int call) {
  const bool idempotent = call % 4 == 0;
  const CallOptions options{.timeout = milliseconds(400), .idempotent = idempotent};
  const auto who = co_await of.client->call<&FaultyService::serve>(options, call, call % 3000);
  const int executions = of.record.executions[call];
  if (!idempotent) EXPECT_LE(executions, 1) << "call " << call << " is not marked, and was executed again";
  if (who) {
    EXPECT_GE(executions, 1) << "call " << call;
    ++calls.succeeded;
  } else if (who.error().not_executed()) {
    EXPECT_EQ(executions, 0) << "call " << call << ": " << who.error().text;
  }
  ++calls.ended;
}

// While faults come, no call is executed twice unless it is marked, the attempts are bounded, and each call ends. When
// they have ended, the cluster serves all calls again within recovery_time_max, and the list is the newest one.
TEST(ClusterFaults, CallsAreExecutedOnceAndTheClusterRecovers) {
  const testing::SeedOptions seeds{
      .name = "cluster_faults", .count = 25, .failed = [] { return ::testing::Test::HasFailure(); }};
  const auto outcome = testing::for_each_seed(seeds, [](Simulation& simulation) -> Task<void> {
    FaultyCluster cluster(simulation);
    FaultyCalls calls;
    Scope running;
    for (int fault = 0; fault < 12; ++fault) {
      cluster.begin_fault();
      for (int i = 0; i < 25; ++i) {
        running.spawn(call_in_faults(cluster, calls, calls.begun++));
        co_await simulation.loop().sleep(simulation.between(milliseconds(0), milliseconds(20)));
      }
    }
    co_await running.join();
    EXPECT_EQ(calls.ended, calls.begun) << "each call has ended, without a deadline beyond its own";
    // The budget permits half of its 20 tokens, and a tenth for each success.
    EXPECT_LE(cluster.record.requests, calls.begun + calls.begun / 10 + 12) << "attempts at servers";
    cluster.end_faults();
    for (const Time end = simulation.loop().after(recovery_time_max); simulation.loop().now() < end;) {
      running.spawn(call_in_faults(cluster, calls, calls.begun++));  // Some notice a connection that was lost.
      co_await simulation.loop().sleep(milliseconds(50));
    }
    co_await running.join();
    const FaultyCalls before = calls;
    for (int i = 0; i < 60; ++i) co_await call_in_faults(cluster, calls, calls.begun++);
    EXPECT_EQ(calls.succeeded - before.succeeded, 60) << "the cluster has recovered";
    const NamingState& list = cluster.client->naming();
    EXPECT_EQ(list.endpoints.size(), static_cast<std::size_t>(faulty_servers));
    EXPECT_FALSE(list.error);
  });
  EXPECT_TRUE(outcome) << outcome.report;
}

}  // namespace
}  // namespace hawser::cluster
