#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
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

// Runs `body` in a network of its own that has two local ports for connections. Returns why this process may not make
// one. Empty: `body` has run.
template <class Body>
std::string with_two_local_ports(Body body) {
  std::string forbidden;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      EXPECT_EQ(errno, EPERM) << "unshare(CLONE_NEWNET)";
      forbidden = "this process may not make a network of its own";
      return;
    }
    ASSERT_EQ(std::system("ip link set lo up"), 0);
    if (std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range"); !(range << "40000 40001" << std::flush)) {
      forbidden = "/proc/sys/net/ipv4/ip_local_port_range cannot be written";
      return;
    }
    Loop loop(LoopOptions{.log = no_log()});
    TcpNetwork network;
    body([&](const char* address) { return loop.run(network.connect(loop, address, std::chrono::seconds(30))); }, loop,
         network);
  }).join();
  return forbidden;
}

TEST(LocalPorts, NoSocketIsConnectedWithItself) {
  for (const char* const host : {"127.0.0.1", "0.0.0.0"}) {
    const std::string forbidden = with_two_local_ports([host](auto connect, Loop&, TcpNetwork&) {
      for (const char* const port : {":40000", ":40001"}) {
        const std::string address = std::string(host) + port;
        const auto connected = connect(address.c_str());
        ASSERT_FALSE(connected) << address << " from " << (*connected)->local();
        EXPECT_EQ(connected.error().text, "cannot connect to " + address + ": Connection refused");
      }
    });
    if (!forbidden.empty()) GTEST_SKIP() << forbidden;
  }
}

TEST(LocalPorts, ThatAreAllInUseAreNamed) {
  const std::string forbidden = with_two_local_ports([](auto connect, Loop& loop, TcpNetwork& network) {
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
  if (!forbidden.empty()) GTEST_SKIP() << forbidden;
}

}  // namespace
}  // namespace hawser::transport
