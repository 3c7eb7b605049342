#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/list_update.h"
#include "cluster/test/hand_name.h"
#include "hawser/cluster_client.h"
#include "hawser/testing.h"

// Clients of names with long lists: a change takes many turns of the loop, in which calls go on.
namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t long_list_size = 3000;
constexpr std::size_t long_list_steps = long_list_size / ListUpdate::endpoints_of_step;

int answer_long_list(int x) { return x; }

// A server that serves, then others that do not exist.
std::vector<Endpoint> long_list(const std::string& host) {
  std::vector<Endpoint> list = {{.address = "a:1"}};
  for (std::size_t i = 1; i < long_list_size; ++i) list.push_back({.address = host + std::to_string(i) + ":1"});
  return list;
}

struct LongList {
  explicit LongList(std::vector<Endpoint> first = {}) {
    hand.endpoints = std::move(first);
    auto created =
        ClusterClient::create("hand:x", {.balancing = {.kind = Balancing::pick_first}, .naming = {hand.scheme()}});
    EXPECT_TRUE(created) << created.error().text;
    client = std::move(*created);
  }
  std::string last() const {
    const auto endpoints = client->endpoints();
    return endpoints.empty() ? "" : endpoints.back().endpoint.address;
  }

  HandName hand;
  std::unique_ptr<ClusterClient> client;
};

template <class Body, class... Given>
void simulate_long_list(Body body, Given... given) {
  testing::Simulation simulation(1);
  simulation.serve("a:1", [](Server& server) {
    server.register_handler<answer_long_list>();
    return nullptr;
  });
  simulation.run(body(given...));
}

TEST(LongListsOfClients, CallsWaitForTheFirstOne) {
  simulate_long_list([]() -> Task<void> {
    LongList of(long_list("x"));
    EXPECT_EQ(of.last(), "");
    const auto reply = co_await of.client->call<answer_long_list>({.timeout = seconds(1)}, 7);
    EXPECT_TRUE(reply) << reply.error().text;
    EXPECT_EQ(of.last(), "x2999:1");
  });
}

TEST(LongListsOfClients, AreReplacedInStepsWhileCallsGoOn) {
  simulate_long_list([]() -> Task<void> {
    LongList of(long_list("x"));
    const auto first = co_await of.client->call<answer_long_list>({.timeout = seconds(1)}, 0);
    EXPECT_TRUE(first) << first.error().text;
    of.hand.sink->on_endpoints(long_list("y"));
    std::size_t turns = 0;
    for (; of.last() != "y2999:1"; ++turns) {
      EXPECT_EQ(of.client->endpoints().size(), long_list_size);
      co_await Loop::current()->sleep(Duration(1));
    }
    EXPECT_GE(turns, 2 * long_list_steps) << "the list is checked, then it takes effect";
    EXPECT_EQ(of.client->endpoints().front().reach, "ready") << "the connection stays";
    const auto later = co_await of.client->call<answer_long_list>({.timeout = seconds(1)}, 1);
    EXPECT_TRUE(later) << later.error().text;
  });
}

TEST(LongListsOfClients, MayEndAtEachStep) {
  for (std::size_t turns = 0; turns < 5 * long_list_steps; turns += 7) {
    const auto body = [](std::size_t until) -> Task<void> {
      LongList of(long_list("x"));
      const auto first = co_await of.client->call<answer_long_list>({.timeout = seconds(1)}, 0);
      EXPECT_TRUE(first) << first.error().text;
      std::vector<Endpoint> list = long_list("y");
      list.erase(list.begin());  // The server leaves.
      of.hand.sink->on_endpoints(std::move(list));
      for (std::size_t i = 0; i < until; ++i) co_await Loop::current()->sleep(Duration(1));
      of.client.reset();
    };
    simulate_long_list(body, turns);
  }
}

}  // namespace
}  // namespace hawser::cluster
