#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "hawser/rdma.h"
#include "tests/rdma/cable.h"
#include "tests/tls/fixture.h"

// Searches the packets of a network for what calls have sent. The control of each test is a level that does not
// encrypt: there the text is found.
namespace hawser {
namespace {

using namespace testing_tools;

// Keeps the packets of one network interface. The process needs CAP_NET_RAW.
class PacketCapture {
 public:
  // Throws std::system_error if packets can't be received.
  explicit PacketCapture(const char* interface) : fd_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "AF_PACKET");
    const int room = 128 << 20;
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(interface));
    if (address.sll_ifindex == 0 || ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      const int error = errno;
      ::close(fd_);
      throw std::system_error(error, std::generic_category(), interface);
    }
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  PacketCapture(const PacketCapture&) = delete;
  PacketCapture& operator=(const PacketCapture&) = delete;
  ~PacketCapture() {
    stop();
    ::close(fd_);
  }

  // Ends the capture when no packet waits any more.
  const std::vector<std::string>& packets() {
    stop();
    return packets_;
  }
  // Packets that the kernel had no room for since the beginning.
  unsigned lost() const { return lost_; }

 private:
  void stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  void run(const std::stop_token& stop) {
    std::string packet(256 * 1024, '\0');
    while (true) {
      const ssize_t bytes = ::recv(fd_, packet.data(), packet.size(), MSG_DONTWAIT);
      if (bytes >= 0) {
        packets_.emplace_back(packet, 0, static_cast<std::size_t>(bytes));
      } else if (stop.stop_requested()) {
        break;
      } else {
        std::this_thread::sleep_for(1ms);
      }
    }
    tpacket_stats counts{};
    socklen_t size = sizeof(counts);
    if (::getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &counts, &size) == 0) lost_ = counts.tp_drops;
  }

  const int fd_;
  std::vector<std::string> packets_;
  unsigned lost_ = 0;
  std::jthread thread_;
};

// A network of this thread, and of threads that it starts, with "lo" alone, so that nobody else's packets are there.
// The thread returns to the earlier network in the end. Needs privileges.
class OwnNetwork {
 public:
  OwnNetwork() : earlier_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    there_ = earlier_ >= 0 && ::unshare(CLONE_NEWNET) == 0;
    if (there_) {
      EXPECT_EQ(std::system("ip link set lo up"), 0);
    }
  }
  OwnNetwork(const OwnNetwork&) = delete;
  OwnNetwork& operator=(const OwnNetwork&) = delete;
  ~OwnNetwork() {
    if (earlier_ < 0) return;
    if (there_) {
      EXPECT_EQ(::setns(earlier_, CLONE_NEWNET), 0);
    }
    ::close(earlier_);
  }
  bool there() const { return there_; }

 private:
  const int earlier_;
  bool there_ = false;
};

const std::string readable_text = "[a text that nobody else may read]";

std::string marked_text(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += readable_text;
  return text;
}

class TlsCapture : public TlsFixture {
 protected:
  // Calls with small and large texts over `transport` at `level`, with one in the metadata, too. Returns how many
  // packets have passed `interface`, and how many of them have a part of a text.
  struct Found {
    std::size_t packets = 0;
    std::size_t readable = 0;
  };
  Found search(const char* interface, const TransportSpec& transport, std::optional<TlsProtection> level) {
    tls_options.protection = level.value_or(TlsProtection::authenticated);
    tls_options.policy = TlsPolicy::allowed;
    options.transports.enabled = {transport};
    security.reset();
    start();
    ClientOptions with{.connect_timeout = patience, .call_timeout = patience};
    with.transports.enabled = {transport};
    with.transports.required = std::string(transport.name());
    if (level) {
      TlsClientOptions tls = client_options();
      tls.server_name = "localhost";
      tls.protection = *level;
      with.security = TlsClient(tls);
    }
    PacketCapture capture(interface);
    sync_wait([](std::string to, ClientOptions given) -> Task<void> {
      Client client(std::move(given));
      auto connected = co_await client.connect(to);
      REQUIRE_OK(connected);
      for (const std::size_t size : {100, 20'000, 1'000'000}) {
        const std::string text = marked_text(size);
        CallOptions call;
        call.metadata = {{"note", readable_text}};
        auto reply = co_await client.call<echo>(call, std::string_view(text));
        REQUIRE_OK(reply);
        EXPECT_EQ(*reply, text);
      }
      client.close();
    }(server->address(), std::move(with)));
    server.reset();
    Found found;
    // Half of the text, since a border of packets may lie in the midst of one.
    const std::string part = readable_text.substr(readable_text.size() / 2);
    for (const std::string& packet : capture.packets()) {
      ++found.packets;
      found.readable += packet.find(part) != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(capture.lost(), 0u) << "a capture with gaps proves nothing";
    return found;
  }
  // The levels that encrypt, and those that do not.
  void expect_sealed(const char* interface, const TransportSpec& transport) {
    for (const TlsProtection level : {TlsProtection::authenticated, TlsProtection::signed_messages}) {
      SCOPED_TRACE(static_cast<int>(level));
      const Found found = search(interface, transport, level);
      EXPECT_GE(found.packets, 20u);
      EXPECT_GE(found.readable, 20u) << "the capture does not see the path";
    }
    const Found sealed = search(interface, transport, TlsProtection::sealed_messages);
    EXPECT_GE(sealed.packets, 20u);
    EXPECT_EQ(sealed.readable, 0u);
  }
};

TEST_F(TlsCapture, NothingIsReadableOfSealedMessagesOverUcx) {
  const OwnNetwork network;
  if (!network.there()) GTEST_SKIP() << "no network namespace can be added here: CAP_SYS_ADMIN is missing";
  expect_sealed("lo", ucx({.tls = "tcp", .net_devices = "lo"}));
}

TEST_F(TlsCapture, NothingIsReadableOfSealedMessagesOverRdma) {
  const rdma_tests::Cable cable;
  if (!cable.there()) {
    ASSERT_FALSE(rdma_tests::in_guest()) << "two Soft-RoCE devices and a cable can't be added in the guest";
    GTEST_SKIP() << "no Soft-RoCE devices with a cable can be added here";
  }
  options.listen = "10.79.200.2:0";
  expect_sealed("hawser_wire1", rdma());
}

}  // namespace
}  // namespace hawser
