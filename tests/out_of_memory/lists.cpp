#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/balancer.h"
#include "cluster/test/hand_name.h"
#include "hawser/cluster_client.h"
#include "hawser/scope.h"
#include "hawser/testing.h"
#include "tests/out_of_memory/block_limit.h"
#include "tests/testing.h"

// Each allocation for a list of a name, and for another kind of choice, fails once.
namespace hawser::out_of_memory {

using namespace testing_tools;
using cluster::Backend;
using cluster::Balancer;

constexpr Time list_time(std::chrono::hours(1));

std::vector<Endpoint> listed_hosts(int from, int to) {
  std::vector<Endpoint> list;
  for (int i = from; i < to; ++i) {
    list.push_back({.address = "s" + std::to_string(i) + ":1", .priority = static_cast<std::uint32_t>(i % 2)});
  }
  return list;
}

std::set<std::string> addresses_of(const Balancer& balancer) {
  std::set<std::string> addresses;
  for (const auto& backend : balancer.backends()) addresses.insert(backend->endpoint.address);
  return addresses;
}

// The endpoints that calls with different keys get, if all can be reached.
std::set<std::string> chosen_by(Balancer& balancer) {
  for (const auto& backend : balancer.backends()) balancer.set_reach(*backend, cluster::Reach::ready, list_time);
  std::set<std::string> chosen;
  for (std::uint64_t key = 0; key < 40; ++key) {
    const Backend* const backend = balancer.choose(list_time, key << 58).ready;
    EXPECT_NE(backend, nullptr);
    if (backend == nullptr) continue;
    EXPECT_TRUE(balancer.listed(*backend));
    chosen.insert(backend->endpoint.address);
  }
  return chosen;
}

// Returns false if the allocation at the position was needed.
template <class Work>
bool works_without(long position, Work work) {
  allocations_left = position;
  try {
    work();
  } catch (const std::bad_alloc&) {
    return false;
  }
  allocations_left = -1;
  return true;
}

class BalancingMemory : public ::testing::TestWithParam<Balancing> {};

TEST_P(BalancingMemory, AListForWhichThereIsNoneLeavesTheOneBefore) {
  const std::vector<Endpoint> first = listed_hosts(0, 8);
  const std::vector<Endpoint> second = listed_hosts(4, 13);
  const std::set<std::string> before = {"s0:1", "s2:1", "s4:1", "s6:1"};
  const std::set<std::string> behind = {"s4:1", "s6:1", "s8:1", "s10:1", "s12:1"};
  long position = 0;
  for (bool more = true; more; ++position) {
    ASSERT_LT(position, 2000);
    Balancer balancer({.kind = GetParam()}, 1, [] { return std::make_shared<Backend>(); });
    balancer.update(first);
    balancer.begin_update(second);
    const auto update = [&] {
      while (balancer.updates()) balancer.work();
    };
    more = !works_without(position, update);
    if (more) {
      EXPECT_EQ(addresses_of(balancer).size(), 8U);
      for (const std::string& one : chosen_by(balancer)) EXPECT_TRUE(before.contains(one)) << one << " at " << position;
    }
    update();
    EXPECT_EQ(addresses_of(balancer).size(), 9U);
    for (const std::string& one : chosen_by(balancer)) EXPECT_TRUE(behind.contains(one)) << one << " at " << position;
  }
  EXPECT_GT(position, 20);
}

TEST_P(BalancingMemory, AKindForWhichThereIsNoneLeavesTheOneBefore) {
  const Balancing other = GetParam() == Balancing::round_robin ? Balancing::pick_first : Balancing::round_robin;
  long position = 0;
  for (bool more = true; more; ++position) {
    ASSERT_LT(position, 2000);
    Balancer balancer({.kind = other}, 1, [] { return std::make_shared<Backend>(); });
    balancer.update(listed_hosts(0, 8));
    const std::size_t spread = chosen_by(balancer).size();
    const auto change = [&] { balancer.set_options({.kind = GetParam()}); };
    more = !works_without(position, change);
    if (more) {
      EXPECT_EQ(chosen_by(balancer).size(), spread) << "at " << position;
      EXPECT_EQ(balancer.options().kind, other);
      change();
    }
    while (balancer.work()) {
    }
    EXPECT_EQ(chosen_by(balancer).size() == 1, GetParam() == Balancing::pick_first) << "at " << position;
  }
  EXPECT_GT(position, 3);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BalancingMemory,
                         ::testing::Values(Balancing::p2c, Balancing::least_request, Balancing::round_robin,
                                           Balancing::weighted_round_robin, Balancing::random, Balancing::ring_hash,
                                           Balancing::pick_first));

int answer_of_list(int x) { return x; }

std::vector<Endpoint> hosts_and(const std::string& host, std::size_t count) {
  std::vector<Endpoint> list = {{.address = "a:1"}};
  for (std::size_t i = 1; i < count; ++i) list.push_back({.address = host + std::to_string(i) + ":1"});
  return list;
}

// A long list is checked, and put into effect, in turns of the loop in which nobody could catch an exception.
TEST(ListsMemory, AllocationsForAListOfAClientMayFail) {
  constexpr std::size_t count = 300;
  constexpr long position_stride = 29;  // From some on: there are many of the same kind.
  testing::Simulation simulation(1);
  simulation.serve("a:1", [](Server& server) {
    server.register_handler<answer_of_list>();
    return nullptr;
  });
  simulation.run([]() -> Task<void> {
    cluster::HandName hand;
    hand.endpoints = hosts_and("x", count);
    auto client =
        ClusterClient::create("hand:x", {.balancing = {.kind = Balancing::pick_first}, .naming = {hand.scheme()}});
    REQUIRE_OK(client);
    EXPECT_EQ(co_await (*client)->call<answer_of_list>(1), 1);
    int runs = 0;
    for (long position = 0;; position += position < 40 ? 1 : position_stride) {
      const std::string host = ++runs % 2 == 0 ? "x" : "y";
      const auto list = std::make_shared<const std::vector<Endpoint>>(hosts_and(host, count));
      allocations_left = position;
      hand.sink->on_shared_endpoints(list);
      for (int turn = 0; turn < 12; ++turn) co_await Loop::current()->sleep(Duration(1));
      const bool failed = allocations_left.exchange(-1) < 0;
      EXPECT_EQ(co_await (*client)->call<answer_of_list>(2), 2) << "behind allocation " << position;
      co_await Loop::current()->sleep(3s);
      const auto endpoints = (*client)->endpoints();
      REQUIRE(endpoints.size() == count);
      EXPECT_EQ(endpoints.back().endpoint.address, list->back().address) << "behind allocation " << position;
      if (!failed) break;
    }
    EXPECT_GT(runs, 40);
  }());
}

Task<void> call_of_list(ClusterClient& client) {
  try {
    static_cast<void>(co_await client.call<answer_of_list>(1));
  } catch (const std::bad_alloc&) {  // The coroutines of the call itself need memory.
  }
}

// Nobody could catch an exception of the task that connects. An endpoint that it left as it is would never be tried
// again.
TEST(ListsMemory, AllocationsForAConnectionOfAClientMayFail) {
  testing::Simulation simulation(1);
  simulation.serve("a:1", [](Server& server) {
    server.register_handler<answer_of_list>();
    return nullptr;
  });
  simulation.run([]() -> Task<void> {
    long position = 0;
    for (bool failed = true; failed; ++position) {
      auto client = ClusterClient::create("list:a:1", {.retry = {.attempts_max = 1}});
      REQUIRE_OK(client);
      Scope calls;
      allocations_left = position;
      try {
        calls.spawn(call_of_list(**client));
      } catch (const std::bad_alloc&) {
      }
      failed = allocations_left.exchange(-1) < 0;  // The simulated network does the rest.
      co_await calls.join();
      Result<int> again = fail(ErrorCode::internal, "not called");
      for (int i = 0; i < 10 && !again; ++i) {
        again = co_await (*client)->call<answer_of_list>(2);
        co_await Loop::current()->sleep(10s);
      }
      EXPECT_EQ(again, 2) << "behind allocation " << position;
    }
    EXPECT_GT(position, 20);
  }());
}

// A destructor cannot report that there is no memory. It needs none for the endpoints, which may be many, also while
// those of a list are leaving. The end of a connection needs some for its texts.
TEST(ListsMemory, NoneIsNeededForTheEndpointsOfAClientThatEnds) {
  constexpr std::size_t count = 600;
  testing::Simulation simulation(1);
  simulation.run([]() -> Task<void> {
    for (int turns = 0; turns < 12; ++turns) {
      cluster::HandName hand;
      hand.endpoints = hosts_and("x", count);
      auto client = ClusterClient::create("hand:x", {.naming = {hand.scheme()}});
      REQUIRE_OK(client);
      hand.sink->on_endpoints(hosts_and("y", count));
      for (int turn = 0; turn < turns; ++turn) co_await Loop::current()->sleep(Duration(1));
      allocations_left = 0;
      client->reset();
      EXPECT_EQ(allocations_left.exchange(-1), 0) << "an allocation has failed behind " << turns << " turns";
    }
  }());
}

}  // namespace hawser::out_of_memory
