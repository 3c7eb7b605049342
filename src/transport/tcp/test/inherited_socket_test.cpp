#include "transport/tcp/inherited_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_network.h"
#include "transport/tcp/test/tcp_testing.h"

namespace hawser::transport {
namespace {

struct InheritedAccepting final : AcceptSink {
  void accepted(std::unique_ptr<Stream> stream) override { streams.push_back(std::move(stream)); }
  std::vector<std::unique_ptr<Stream>> streams;
};

class InheritedSocketTest : public TcpLoopTest {
 protected:
  // Makes a listening socket as another program does: it blocks, and exec() keeps it open.
  int passed_socket(const SocketAddress& address) {
    const int fd = above_standard(::socket(address.family(), SOCK_STREAM, 0));
    EXPECT_EQ(bind(fd, address.get(), address.size), 0);
    EXPECT_EQ(::listen(fd, 8), 0);
    return fd;
  }
  void serves(const SocketAddress& address) {
    const int fd = passed_socket(address);
    const std::string where = local_of(fd);
    {
      const auto listener = network.listen(loop, "fd:" + std::to_string(fd), accepting);
      ASSERT_TRUE(listener.has_value()) << listener.error().describe();
      EXPECT_EQ((*listener)->address(), where);
      EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
      const auto client = loop.run(network.connect(loop, where, std::chrono::seconds(10)));
      ASSERT_TRUE(client.has_value()) << client.error().describe();
      EXPECT_TRUE(until([&] { return accepting.streams.size() == 1; }));
    }
    EXPECT_EQ(fcntl(fd, F_GETFD), -1) << "the listener owned it";
  }

  InheritedAccepting accepting;
  TcpNetwork network;
};
INSTANTIATE_TEST_SUITE_P(Kinds, InheritedSocketTest, exec::every_loop(), exec::name_of);

TEST_P(InheritedSocketTest, ServesTcp) {
  const std::array<unsigned char, 4> loopback{127, 0, 0, 1};
  serves(address_of(AF_INET, loopback.data(), 0));
}

TEST_P(InheritedSocketTest, ServesSeveralSockets) {
  const std::array<unsigned char, 4> loopback{127, 0, 0, 1};
  const std::array<int, 2> passed{passed_socket(address_of(AF_INET, loopback.data(), 0)),
                                  passed_socket(address_of(AF_INET, loopback.data(), 0))};
  const std::array<std::string, 2> where{local_of(passed[0]), local_of(passed[1])};
  const std::string both = "fd:" + std::to_string(passed[0]) + "," + std::to_string(passed[1]);
  const auto listener = network.listen(loop, both, accepting);
  ASSERT_TRUE(listener.has_value()) << listener.error().describe();
  EXPECT_EQ((*listener)->address(), where[0]);
  for (const std::string& address : where) {
    ASSERT_TRUE(loop.run(network.connect(loop, address, std::chrono::seconds(10))).has_value());
  }
  EXPECT_TRUE(until([&] { return accepting.streams.size() == 2; }));
}

TEST_P(InheritedSocketTest, ServesAUnixSocketAndLeavesItsFile) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "socket";
  serves(**parse_unix("unix:" + path.string()));
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
}

TEST_P(InheritedSocketTest, RefusesOtherDescriptorsAndLeavesThemOpen) {
  const Descriptor datagram(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Descriptor silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<std::string> wrong = {"fd:", "fd:x", "fd:3x", "fd:-1", "fd:1", "fd:99999999999", "fd:1000000"};
  for (const Descriptor* one : {&datagram, &silent, &file}) wrong.push_back("fd:" + std::to_string(one->get()));
  // One that is right, and one that is not; and the same one twice.
  const std::array<unsigned char, 4> loopback{127, 0, 0, 1};
  const Descriptor right(passed_socket(address_of(AF_INET, loopback.data(), 0)));
  for (const int second : {file.get(), right.get()}) {
    wrong.push_back("fd:" + std::to_string(right.get()) + "," + std::to_string(second));
  }
  for (const std::string& address : wrong) {
    const auto listener = network.listen(loop, address, accepting);
    ASSERT_FALSE(listener.has_value()) << address;
    EXPECT_EQ(listener.error().code, ErrorCode::invalid_argument) << listener.error().describe();
    EXPECT_NE(listener.error().text.find(address), std::string::npos) << listener.error().text;
  }
  for (const Descriptor* one : {&datagram, &silent, &file}) EXPECT_EQ(fcntl(one->get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(fcntl(right.get(), F_GETFD), 0) << "no listener took it";
}

}  // namespace
}  // namespace hawser::transport
