#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/test/hand_name.h"
#include "hawser/cluster_client.h"
#include "hawser/testing.h"

// A thousand servers and a hundred clients under faults that many servers have at once, by seed. HAWSER_TEST_SEEDS=1000
// runs a thousand of them.
namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::SimServer;
using testing::Simulation;

constexpr std::size_t fleet_racks = 20;
constexpr std::size_t fleet_servers_of_rack = 50;
constexpr std::size_t fleet_servers = fleet_racks * fleet_servers_of_rack;
constexpr std::size_t fleet_clients = 100;
constexpr std::size_t fleet_subset = 20;
// As in cluster_faults_test.cpp.
constexpr Duration fleet_recovery_max = seconds(10);

// The servers write it. It survives their crashes.
struct FleetRecord {
  std::vector<int> executions;  // By call.
  std::vector<int> of_server = std::vector<int>(fleet_servers);
  int requests = 0;
  bool overloaded = false;  // Every second server refuses calls.
  bool slow = false;        // Calls take a hundred times as long.
};

struct FleetService {
  std::size_t number;
  FleetRecord& record;

  Task<Result<int>> serve(Context& context, int call) {
    ++record.requests;
    if (record.overloaded && number % 2 == 0) co_return fail(ErrorCode::overloaded, "this server is overloaded");
    ++record.executions[static_cast<std::size_t>(call)];
    ++record.of_server[number];
    co_await context.loop().sleep(record.slow ? milliseconds(200) : milliseconds(2));
    co_return call;
  }
};

class Fleet {
 public:
  explicit Fleet(Simulation& simulation) : simulation_(simulation) {
    for (std::size_t i = 0; i < fleet_servers; ++i) {
      const std::string address = host_of(i) + ":1";
      endpoints_.push_back({.address = address});
      servers_.push_back(&simulation_.serve(address, [i, &of = record](Server& server) {
        auto service = std::make_unique<FleetService>(FleetService{.number = i, .record = of});
        server.register_handler<&FleetService::serve>(service.get());
        return service;
      }));
    }
    names_.resize(fleet_clients);
    for (std::size_t i = 0; i < fleet_clients; ++i) {
      names_[i].endpoints = endpoints_;
      ClusterOptions options{.balancing = {.subset = fleet_subset},
                             .retry_budget = std::make_shared<RetryBudget>(20, 0.1),
                             .naming = {names_[i].scheme()},
                             .seed = simulation_.seed() * fleet_clients + i + 1};
      auto created = ClusterClient::create("hand:x", std::move(options));
      simulation_.require(created.has_value(), "a client is made");
      clients_.push_back(std::move(*created));
    }
  }

  void begin_fault() {
    const std::size_t rack = simulation_.below(fleet_racks);
    switch (simulation_.below(8)) {
      case 0:
        for_rack(rack, [](SimServer& server) {
          if (server.running()) server.crash(testing::Crash::machine);
        });
        break;
      case 1:  // The switch of the rack.
        for (std::size_t i = 0; i < fleet_servers_of_rack; ++i) simulation_.partition(host_in(rack, i));
        break;
      case 2:
        for (std::size_t i = 0; i < fleet_servers_of_rack; ++i) simulation_.partition_one_way(host_in(rack, i), "");
        break;
      case 3: record.overloaded = true; break;
      case 4: record.slow = true; break;
      case 5:
        for (HandName& name : names_) name.sink->on_failure(Error::of_call(ErrorCode::unavailable, "no registry"));
        break;
      case 6:
        report({endpoints_.begin() + static_cast<std::ptrdiff_t>(simulation_.below(fleet_servers)), endpoints_.end()});
        break;
      default: simulation_.reset_connections(); break;
    }
  }
  // A wave of restarts: a rack after the other, without a notice.
  Task<void> restart_all() {
    for (std::size_t rack = 0; rack < fleet_racks; ++rack) {
      for_rack(rack, [](SimServer& server) {
        if (server.running()) server.crash();
      });
      co_await simulation_.loop().sleep(milliseconds(50));
      for_rack(rack, [](SimServer& server) {
        if (!server.running()) server.restart();
      });
    }
  }
  void end_faults() {
    record.overloaded = record.slow = false;
    simulation_.end_partitions();
    for (SimServer* const server : servers_) {
      if (!server->running()) server->restart();
    }
    report(endpoints_);
  }

  Task<void> call(std::size_t by) {
    const int number = static_cast<int>(record.executions.size());
    record.executions.push_back(0);
    const bool idempotent = number % 4 == 0;
    const CallOptions options{.timeout = milliseconds(500), .idempotent = idempotent};
    const auto result = co_await clients_[by]->call<&FleetService::serve>(options, number);
    const int executions = record.executions[static_cast<std::size_t>(number)];
    if (!idempotent) EXPECT_LE(executions, 1) << "call " << number << " was executed again";
    if (result) {
      EXPECT_GE(executions, 1);
      ++succeeded;
    } else if (result.error().not_executed()) {
      EXPECT_EQ(executions, 0) << "call " << number << ": " << result.error().text;
    }
    ++ended;
  }
  // Each client makes a call in each interval.
  Task<void> call_for(Duration duration, Duration interval) {
    Scope running;
    for (const Time end = simulation_.loop().after(duration); simulation_.loop().now() < end;) {
      for (std::size_t i = 0; i < fleet_clients; ++i) running.spawn(call(i));
      co_await simulation_.loop().sleep(interval);
    }
    co_await running.join();
  }

  FleetRecord record;
  int ended = 0;
  int succeeded = 0;

 private:
  static std::string host_of(std::size_t server) { return "s" + std::to_string(server); }
  static std::string host_in(std::size_t rack, std::size_t i) { return host_of(rack * fleet_servers_of_rack + i); }
  template <class Do>
  void for_rack(std::size_t rack, Do act) {
    for (std::size_t i = 0; i < fleet_servers_of_rack; ++i) act(*servers_[rack * fleet_servers_of_rack + i]);
  }
  void report(const std::vector<Endpoint>& list) {
    for (HandName& name : names_) name.sink->on_endpoints(list);
  }

  Simulation& simulation_;
  std::vector<Endpoint> endpoints_;
  std::vector<SimServer*> servers_;
  std::vector<HandName> names_;
  std::vector<std::unique_ptr<ClusterClient>> clients_;
};

Task<void> run_fleet(Simulation& simulation) {
  Fleet fleet(simulation);
  co_await fleet.call_for(seconds(2), milliseconds(100));
  EXPECT_EQ(fleet.succeeded, fleet.ended) << "before the faults";
  // The number of clients that have chosen a server differs.
  const int most = *std::ranges::max_element(fleet.record.of_server);
  EXPECT_LE(most, 20 * fleet.ended / static_cast<int>(fleet_servers)) << "calls of one server, beside the mean";

  Scope restarts;
  if (simulation.chance(0.5)) restarts.spawn(fleet.restart_all());
  for (int fault = 0; fault < 4; ++fault) {
    fleet.begin_fault();
    co_await fleet.call_for(milliseconds(500), milliseconds(50));
  }
  co_await restarts.join();
  EXPECT_EQ(fleet.ended, static_cast<int>(fleet.record.executions.size())) << "each call has ended";
  EXPECT_LE(fleet.record.requests, fleet.ended + fleet.ended / 10 + 12 * static_cast<int>(fleet_clients))
      << "attempts at servers";

  fleet.end_faults();
  co_await fleet.call_for(fleet_recovery_max, milliseconds(500));
  const int ended = std::exchange(fleet.ended, 0);
  fleet.succeeded = 0;
  co_await fleet.call_for(seconds(1), milliseconds(100));
  EXPECT_EQ(fleet.succeeded, fleet.ended) << "the cluster has recovered, behind " << ended << " calls";
}

TEST(ClusterFleet, AThousandServersRecoverFromFaultsOfMany) {
  const testing::SeedOptions seeds{
      .name = "cluster_fleet", .count = 1, .failed = [] { return ::testing::Test::HasFailure(); }};
  const auto outcome = testing::for_each_seed(seeds, run_fleet);
  EXPECT_TRUE(outcome) << outcome.report;
}

// Retries, reconnects and the choices of clients have random parts. In a simulation all of them follow from its seed,
// and not from addresses in memory.
TEST(ClusterFleet, ASeedHasOneCourse) {
  const auto trace_of = [](std::size_t shift) {
    const std::vector<std::vector<char>> moved(shift, std::vector<char>(100));
    Simulation simulation(7);
    simulation.run(run_fleet(simulation));
    return simulation.trace();
  };
  EXPECT_EQ(trace_of(0), trace_of(1000));
}

}  // namespace
}  // namespace hawser::cluster
