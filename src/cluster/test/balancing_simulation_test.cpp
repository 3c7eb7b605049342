#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "cluster/balancer.h"

// Servers with queues in virtual time, and one balancer that spreads random calls over them. Each run follows from its
// seed.
namespace hawser::cluster {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct SimulatedServer {
  double slowness = 1;                               // Factor of the time of service.
  bool fails_fast = false;                           // Answers every call with a failure in 100 us.
  std::vector<Time> workers = std::vector<Time>(8);  // When each is free.
};

struct End {
  Time when;
  std::size_t server;
  bool fails;
  Time began;
  bool operator>(const End& other) const { return when > other.when; }
};

class SimulatedCluster {
 public:
  SimulatedCluster(const BalancingOptions& options, std::size_t count, std::uint64_t seed)
      : servers(count),
        calls(count),
        random_(seed),
        balancer_(options, seed + 1, [] { return std::make_shared<Backend>(); }) {
    std::vector<Endpoint> list;
    for (std::size_t i = 0; i < count; ++i) list.push_back({.address = "s" + std::to_string(i) + ":1"});
    balancer_.update(list);
    for (const auto& one : balancer_.backends()) {
      indices_.emplace(one.get(), indices_.size());
      balancer_.set_reach(*one, Reach::ready, now_);
    }
  }

  // Offers calls at a mean rate for a time. Clears the statistics first.
  void run(double calls_per_second, Duration duration) {
    latencies.clear();
    std::ranges::fill(calls, 0U);
    failures = 0;
    const Time until = now_ + duration;
    while (now_ < until) {
      const Time next = now_ + exponential(1e9 / calls_per_second);
      while (!ends_.empty() && ends_.top().when <= next) end_first();
      now_ = next;
      begin();
    }
  }
  Duration percentile(double part) {
    std::ranges::sort(latencies);
    return latencies[static_cast<std::size_t>(part * static_cast<double>(latencies.size() - 1))];
  }
  double share(std::size_t server) const {
    double sum = 0;
    for (const unsigned one : calls) sum += one;
    return calls[server] / sum;
  }

  std::vector<SimulatedServer> servers;
  std::vector<unsigned> calls;  // By server.
  std::vector<Duration> latencies;
  unsigned failures = 0;

 private:
  Duration exponential(double mean_ns) {
    const double uniform = static_cast<double>((random_.next() >> 11) + 1) * 0x1.0p-53;
    return Duration(static_cast<Duration::rep>(-std::log(uniform) * mean_ns));
  }
  void begin() {
    Backend* const backend = balancer_.choose(now_, random_.next()).ready;
    const std::size_t index = indices_.at(backend);
    balancer_.begin_call(*backend, now_);
    ++calls[index];
    SimulatedServer& server = servers[index];
    if (server.fails_fast) return ends_.push({now_ + microseconds(100), index, true, now_});
    const auto worker = std::ranges::min_element(server.workers);
    *worker = std::max(*worker, now_) + exponential(1e6 * server.slowness);
    ends_.push({*worker, index, false, now_});
  }
  void end_first() {
    const End end = ends_.top();
    ends_.pop();
    now_ = end.when;
    balancer_.end_call(*balancer_.backends()[end.server], end.fails ? Judgement::failure : Judgement::success,
                       end.when - end.began, now_);
    latencies.push_back(end.when - end.began);
    failures += end.fails ? 1 : 0;
  }

  Time now_ = Time(std::chrono::hours(1));
  Random random_;
  Balancer balancer_;
  std::unordered_map<const Backend*, std::size_t> indices_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

constexpr double rate = 20'000;  // A quarter of the capacity of ten servers.

// p99 with one server that is 20 times slower, relative to p99 without it.
double gray_server(Balancing kind, std::uint64_t seed) {
  SimulatedCluster cluster({.kind = kind}, 10, seed);
  cluster.run(rate, seconds(2));
  const Duration healthy = cluster.percentile(0.99);
  cluster.servers[4].slowness = 20;
  cluster.run(rate, seconds(1));
  cluster.run(rate, seconds(2));
  return static_cast<double>(cluster.percentile(0.99).count()) / static_cast<double>(healthy.count());
}

TEST(BalancingSimulation, P2cKeepsTheTailUnderOneSlowServer) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) EXPECT_LE(gray_server(Balancing::p2c, seed), 1.5) << "seed " << seed;
  EXPECT_GT(gray_server(Balancing::round_robin, 1), 10) << "the simulation shows what p2c avoids";
}

BalancingOptions without_exclusions(Balancing kind) {
  return {.kind = kind, .outliers = {.enabled = false}, .breaker = {.failures_max = 0}};
}

TEST(BalancingSimulation, AServerThatFailsFastIsNotPreferred) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SimulatedCluster cluster(without_exclusions(Balancing::p2c), 10, seed);
    cluster.run(rate, seconds(1));
    cluster.servers[4].fails_fast = true;
    cluster.run(rate, seconds(4));
    EXPECT_LT(cluster.share(4), 0.005) << "seed " << seed;
  }
  SimulatedCluster attracted(without_exclusions(Balancing::least_request), 10, 1);
  attracted.servers[4].fails_fast = true;
  attracted.run(rate, seconds(1));
  EXPECT_GT(attracted.share(4), 0.1) << "the simulation shows what p2c avoids";
}

TEST(BalancingSimulation, AServerThatRecoversGetsItsShareWithin90Seconds) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SimulatedCluster cluster({.kind = Balancing::p2c}, 10, seed);
    cluster.servers[4].fails_fast = true;
    cluster.run(rate / 20, seconds(30));
    cluster.servers[4].fails_fast = false;
    cluster.run(rate / 20, seconds(90));
    cluster.run(rate / 20, seconds(10));
    EXPECT_GT(cluster.share(4), 0.05) << "seed " << seed;
  }
}

TEST(BalancingSimulation, OutliersAreExcludedFromRoundRobin) {
  SimulatedCluster cluster({.kind = Balancing::round_robin, .breaker = {.failures_max = 0}}, 10, 1);
  cluster.servers[4].fails_fast = true;
  cluster.run(rate / 4, seconds(11));
  cluster.run(rate / 4, seconds(10));
  EXPECT_LT(cluster.share(4), 0.01);
}

TEST(BalancingSimulation, ABreakerExcludesAServerAtOnceAndLetsItReturn) {
  SimulatedCluster cluster({.kind = Balancing::round_robin, .outliers = {.enabled = false}}, 10, 1);
  cluster.servers[4].fails_fast = true;
  cluster.run(rate / 4, seconds(2));
  EXPECT_LT(cluster.failures, 10U) << "five in a row, and a try after 1 s";
  cluster.run(rate / 4, seconds(60));
  EXPECT_LT(cluster.failures, 10U);
  cluster.servers[4].fails_fast = false;
  cluster.run(rate / 4, seconds(30));  // The longest time of a breaker.
  cluster.run(rate / 4, seconds(1));
  EXPECT_NEAR(cluster.share(4), 0.1, 0.01);
}

TEST(BalancingSimulation, TheSameSeedGivesTheSameRun) {
  const auto run = [](std::uint64_t seed) {
    SimulatedCluster cluster({}, 10, seed);
    cluster.run(rate, seconds(1));
    return cluster.latencies;
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

}  // namespace
}  // namespace hawser::cluster
