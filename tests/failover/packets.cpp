#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "exec/sim_poller.h"
#include "tests/testing.h"
#include "transport/network_access.h"
#include "transport/sim/sim_network.h"
#include "transport/sim/sim_transport.h"

// Transports that lose packets above a certain length.
namespace hawser::failover {

using namespace testing_tools;

inline std::string_view echo_back(std::string_view text) { return text; }

// Connects over a transport that loses packets longer than `mtu_max`, and echoes 100 KB.
struct Outcome {
  std::string transport;
  std::string reason;  // Reason why the transport was not used.
  std::uint64_t failovers = 0;
  bool echoed = false;
  std::string logged;
};

Outcome connect_with(std::size_t mtu_max) {
  Outcome outcome;
  Loop loop(std::make_unique<exec::SimPoller>(), {.log = [&](LogLevel, std::string_view, std::string_view text) {
              outcome.logged += std::string(text) + "\n";
            }});
  transport::SimOptions sim;
  sim.make_transport = &transport::make_sim_transport;
  sim.path_mtu_max = mtu_max;
  const auto network = std::make_shared<transport::SimNetwork>(11, sim);
  const TransportOptions transports{.order = {"simpath"}};
  ServerOptions server_options;
  server_options.listen = "server:0";
  server_options.transports = transports;
  Server server(loop, over(network, server_options));
  server.register_handler<echo_back>();
  ClientOptions client_options;
  client_options.transports = transports;
  Client client(loop, over(network, client_options));
  loop.run([](Server& serving, Client& calling, Outcome& result) -> Task<void> {
    REQUIRE_OK(serving.start());
    auto connected = co_await calling.connect(serving.address());
    REQUIRE_OK(connected);
    result.transport = calling.transport();
    for (const TransportFallback& one : calling.fallback_reasons()) result.reason += one.reason;
    const std::string text = text_of(100'000);
    const CallOptions reply_options{.timeout = 10s};
    auto reply = co_await calling.call<echo_back>(reply_options, text);
    result.echoed = reply && *reply == text;
    result.failovers = calling.failovers();
    calling.close();
    co_await serving.shut_down(1s);
  }(server, client, outcome));
  return outcome;
}

// A switch drops long packets: the transport is kept, with packets that pass, before a call is lost.
TEST(Packets, ThatAreTooLongForTheWayBecomeShorter) {
  for (const std::size_t mtu_max : {std::size_t{1500}, std::size_t{600}}) {
    const Outcome outcome = connect_with(mtu_max);
    EXPECT_EQ(outcome.transport, "simpath") << outcome.logged;
    EXPECT_NE(outcome.logged.find("check the MTU"), std::string::npos);
    EXPECT_TRUE(outcome.echoed);
    EXPECT_EQ(outcome.failovers, 0U);
  }
  EXPECT_EQ(connect_with(4096).logged.find("check the MTU"), std::string::npos);
}

TEST(Packets, WhenTheShortestAreTooLongTheStreamCarries) {
  const Outcome outcome = connect_with(200);
  EXPECT_EQ(outcome.transport, "sim");
  EXPECT_NE(outcome.reason.find("a first ping of 8192 bytes over it was not answered"), std::string::npos)
      << outcome.reason;
  EXPECT_TRUE(outcome.echoed);
}

}  // namespace hawser::failover
