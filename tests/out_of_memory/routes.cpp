#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/cluster_client.h"
#include "hawser/naming_routes.h"
#include "hawser/testing.h"
#include "tests/out_of_memory/block_limit.h"
#include "tests/testing.h"

// Each allocation for new routes of a name fails once, in virtual time.
namespace hawser::out_of_memory {

using namespace testing_tools;

struct ServerWithName {
  std::string name;
  std::string whose() { return name; }
};

// The name "hand:x" with the clusters blue, which is the main one, and green.
struct NameWithRoutes {
  // The list of a cluster. That of the main one is reported with the routes.
  struct ListOfCluster final : NamingSource {
    ListOfCluster(NamingSink** at, std::string of) : main(at), cluster(std::move(of)) {}
    void start(Loop&, NamingSink& to) override {
      if (main != nullptr) *main = &to;
      to.on_endpoints({{.address = cluster + ":1"}});
    }
    NamingSink** const main;
    const std::string cluster;
  };

  std::shared_ptr<const NamingRoutes> all_to(std::size_t cluster) const {
    NamingRoutes routes{.clusters = {"blue", "green"}};
    if (cluster == 0) routes.clusters.pop_back();
    routes.routes.push_back({.targets = {{.cluster = cluster, .weight = 1}}});
    routes.open = [](std::string_view name) { return std::make_unique<ListOfCluster>(nullptr, std::string(name)); };
    return std::make_shared<const NamingRoutes>(std::move(routes));
  }

  NamingSink* sink = nullptr;
};

Task<std::string> whose_server(ClusterClient& client) {
  const Result<std::string> name = co_await client.call<&ServerWithName::whose>();
  co_return name ? *name : name.error().text;
}

// The routes before them stay, and the new ones are taken when there is memory again.
TEST(RoutesMemory, EachAllocationForRoutesMayFail) {
  testing::Simulation simulation(1);
  for (const char* const host : {"blue", "green"}) {
    simulation.serve(std::string(host) + ":1", [host](Server& server) {
      auto service = std::make_unique<ServerWithName>(host);
      server.register_handler<&ServerWithName::whose>(service.get());
      return service;
    });
  }
  simulation.run([]() -> Task<void> {
    NameWithRoutes name;
    ClusterOptions options;
    options.naming.push_back({.name = "hand", .open = [&name](std::string_view) {
                                return std::make_unique<NameWithRoutes::ListOfCluster>(&name.sink, "blue");
                              }});
    auto client = ClusterClient::create("hand:x", std::move(options));
    REQUIRE_OK(client);
    long position = 0;
    for (bool more = true; more; ++position) {
      REQUIRE(position < 500);
      name.sink->on_routes(name.all_to(0));
      EXPECT_EQ(co_await whose_server(**client), "blue");
      co_await Loop::current()->sleep(3s);  // The other cluster ends.
      const std::shared_ptr<const NamingRoutes> green = name.all_to(1);
      allocations_left = position;
      name.sink->on_routes(green);
      more = allocations_left.exchange(-1) < 0;
      const std::string during = co_await whose_server(**client);
      EXPECT_TRUE(during == "green" || (more && during == "blue")) << during << " behind allocation " << position;
      co_await Loop::current()->sleep(3s);
      EXPECT_EQ(co_await whose_server(**client), "green") << "behind allocation " << position;
    }
    EXPECT_GT(position, 10) << "allocations of routes";
  }());
}

}  // namespace hawser::out_of_memory
