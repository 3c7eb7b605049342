#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/loop.h"
#include "transport/tcp/tcp_network.h"

// Connections of a machine that has few local ports for them.
namespace hawser::transport {
namespace {

struct Kept final : AcceptSink {
  void accepted(std::unique_ptr<Stream> stream) override { streams.push_back(std::move(stream)); }
  std::vector<std::unique_ptr<Stream>> streams;
};

// Runs `body` in a network of its own that has two local ports for connections. False: this process may not make one.
template <class Body>
bool with_two_local_ports(Body body) {
  bool there = false;
  std::thread([&] {
    there =
        ::unshare(CLONE_NEWNET) == 0 &&
        std::system("ip link set lo up && echo 40000 40001 2>/dev/null >/proc/sys/net/ipv4/ip_local_port_range") == 0;
    if (!there) return;
    Loop loop(LoopOptions{.log = no_log()});
    TcpNetwork network;
    body([&](const char* address) { return loop.run(network.connect(loop, address, std::chrono::seconds(30))); }, loop,
         network);
  }).join();
  return there;
}

TEST(LocalPorts, NoSocketIsConnectedWithItself) {
  for (const char* const host : {"127.0.0.1", "0.0.0.0"}) {
    const bool there = with_two_local_ports([host](auto connect, Loop&, TcpNetwork&) {
      for (const char* const port : {":40000", ":40001"}) {
        const std::string address = std::string(host) + port;
        const auto connected = connect(address.c_str());
        ASSERT_FALSE(connected) << address << " from " << (*connected)->local();
        EXPECT_EQ(connected.error().text, "cannot connect to " + address + ": Connection refused");
      }
    });
    if (!there) GTEST_SKIP() << "this process may not make a network of its own";
  }
}

TEST(LocalPorts, ThatAreAllInUseAreNamed) {
  const bool there = with_two_local_ports([](auto connect, Loop& loop, TcpNetwork& network) {
    Kept kept;
    const auto listener = network.listen(loop, "127.0.0.1:50000", kept);
    ASSERT_TRUE(listener);
    const auto first = connect("127.0.0.1:50000");
    const auto second = connect("127.0.0.1:50000");
    EXPECT_TRUE(first);
    EXPECT_TRUE(second);
    const auto third = connect("127.0.0.1:50000");
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().text,
              "cannot connect to 127.0.0.1:50000: Cannot assign requested address (all local ports for this address "
              "are in use? keep connections, or raise net.ipv4.ip_local_port_range)");
  });
  if (!there) GTEST_SKIP() << "this process may not make a network of its own";
}

}  // namespace
}  // namespace hawser::transport
