#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "exec/sim_poller.h"
#include "tests/at_rest.h"
#include "tests/testing.h"
#include "transport/network_access.h"
#include "transport/sim/sim_network.h"
#include "transport/sim/sim_transport.h"

// Transports whose pending connections take long to make and to connect. The loop keeps running, and either side may
// give up meanwhile.
namespace hawser::failover {

using namespace testing_tools;

inline std::string_view echo_slowly(std::string_view text) { return text; }

struct SlowPendingConnections : testing::TestWithParam<int> {
  SlowPendingConnections() {
    server_options.listen = "server:0";
    server_options.transports = client_options.transports = {.order = {"simpath"}};
  }
  // Runs body(server) with a started server.
  template <class Body>
  void run(Duration ready_max, Body body) {
    transport::SimOptions sim;
    sim.make_transport = &transport::make_sim_transport;
    sim.transport_ready_max = ready_max;
    network = std::make_shared<transport::SimNetwork>(static_cast<std::uint64_t>(GetParam()), sim);
    auto server = std::make_unique<Server>(loop, over(network, server_options));
    server->register_handler<echo_slowly>();
    loop.run([](std::unique_ptr<Server>& serving, Body& doing) -> Task<void> {
      REQUIRE_OK(serving->start());
      co_await doing(serving);
      if (serving == nullptr) co_return;
      co_await serving->shut_down(1s);
      co_await reach_rest(*Loop::current(), *serving);
    }(server, body));
    server.reset();
    loop.run_posted();
    EXPECT_EQ(network->streams(), 0U);
  }

  Loop loop{std::make_unique<exec::SimPoller>(), {.log = no_log()}};
  ServerOptions server_options;
  ClientOptions client_options;
  std::shared_ptr<transport::SimNetwork> network;
};

TEST_P(SlowPendingConnections, AreWaitedFor) {
  run(500ms, [&](std::unique_ptr<Server>& server) -> Task<void> {
    Client client(loop, over(network, client_options));
    auto connected = co_await client.connect(server->address());
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "simpath");
    auto reply = co_await client.call<echo_slowly>("x");
    EXPECT_OK(reply);
  });
}

TEST_P(SlowPendingConnections, AreNotWaitedForBeyondTheTimeToConnect) {
  client_options.connect_timeout = 100ms;
  server_options.handshake_timeout = 150ms;
  run(60s, [&](std::unique_ptr<Server>& server) -> Task<void> {
    Client client(loop, over(network, client_options));
    auto connected = co_await client.connect(server->address());
    if (!connected) {
      EXPECT_EQ(connected.error().code, ErrorCode::unavailable) << connected.error().describe();
    }
  });
}

// The slow work of another transport does not fail a connection that the byte stream could carry.
TEST_P(SlowPendingConnections, TheStreamCarriesWhenOneTakesTooLong) {
  run(30s, [&](std::unique_ptr<Server>& server) -> Task<void> {
    Client client(loop, over(network, client_options));
    auto connected = co_await client.connect(server->address());
    REQUIRE_OK(connected);
    auto reply = co_await client.call<echo_slowly>("x");
    EXPECT_OK(reply);
    if (client.transport() == "simpath") co_return;
    REQUIRE(client.fallback_reasons().size() == 1);
    EXPECT_NE(client.fallback_reasons()[0].reason.find("took more than 1.5 s"), std::string::npos)
        << client.fallback_reasons()[0].reason;
  });
}

TEST_P(SlowPendingConnections, AClientMayGoMeanwhile) {
  run(500ms, [&](std::unique_ptr<Server>& server) -> Task<void> {
    for (int i = 0; i < 20; ++i) {
      auto client = std::make_unique<Client>(loop, over(network, client_options));
      Scope scope;
      scope.spawn([](Client& connecting, std::string to) -> Task<void> {
        auto ignored = co_await connecting.connect(to);
        static_cast<void>(ignored);
      }(*client, server->address()));
      co_await loop.sleep(i * 50ms);
      scope.clear();
      client.reset();
    }
  });
}

TEST_P(SlowPendingConnections, AServerMayGoMeanwhile) {
  run(500ms, [&](std::unique_ptr<Server>& server) -> Task<void> {
    Client client(loop, over(network, client_options));
    std::optional<Result<void>> outcome;
    Scope scope;
    scope.spawn([](Client& connecting, std::string to, std::optional<Result<void>>& how) -> Task<void> {
      auto connected = co_await connecting.connect(to);
      how.emplace(std::move(connected));
    }(client, server->address(), outcome));
    co_await loop.sleep(GetParam() * 40ms);
    server.reset();
    co_await scope.join();
    EXPECT_TRUE(outcome.has_value());
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, SlowPendingConnections, testing::Range(1, 21));

}  // namespace hawser::failover
