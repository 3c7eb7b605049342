#include "transport/tcp/unix_listening.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder.h"
#include "base/test/lingering_socket_testing.h"
#include "os/passed_descriptors.h"
#include "transport/tcp/tcp_network.h"
#include "transport/tcp/test/tcp_testing.h"

namespace hawser::transport {
namespace {

struct UnixAccepting final : AcceptSink {
  void accepted(std::unique_ptr<Stream> stream) override { streams.push_back(std::move(stream)); }
  std::vector<std::unique_ptr<Stream>> streams;
};

class UnixTest : public TcpLoopTest {
 protected:
  Result<std::unique_ptr<Listener>> listen(const std::string& address) {
    return network.listen(loop, address, accepting);
  }
  Result<std::unique_ptr<Stream>> connect(std::string address) {
    return loop.run(network.connect(loop, std::move(address), std::chrono::seconds(10)));
  }
  // Connects to the address and exchanges some bytes.
  void talk(const std::string& address) {
    const std::size_t before = accepting.streams.size();
    Result<std::unique_ptr<Stream>> client = connect(address);
    ASSERT_TRUE(client.has_value()) << client.error().describe();
    ASSERT_TRUE(until([&] { return accepting.streams.size() == before + 1; }));
    Stream& server = *accepting.streams.back();
    EXPECT_EQ((*client)->transport(), "unix");
    EXPECT_EQ(server.transport(), "unix");
    EXPECT_EQ((*client)->peer(), address);
    EXPECT_EQ(server.local(), address);
    EXPECT_EQ(server.peer(), "unix:pid " + std::to_string(getpid()));
    talk_and_end(**client, accepting.streams);
  }

  const TemporaryFolder temporary;
  const std::string folder = temporary.path();
  const std::string path = folder + "/socket";
  UnixAccepting accepting;
  TcpNetwork network;
};
INSTANTIATE_TEST_SUITE_P(Kinds, UnixTest, exec::every_loop(), exec::name_of);

// Descriptors must not be received: they would be closed on the loop, which may take long.
TEST_P(UnixTest, DescriptorsAreRefused) {
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!refuse_descriptors(probe.get())) GTEST_SKIP() << "this kernel has no SO_PASSRIGHTS";
  const auto listener = listen("unix:" + path);
  ASSERT_TRUE(listener.has_value());
  const SocketAddress address = **parse_unix("unix:" + path);
  const Descriptor hostile(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(hostile.get(), address.get(), address.size), 0);
  EXPECT_FALSE(pass_descriptors(hostile.get(), as_bytes("x"), std::array{probe.get()})) << "before it is accepted";
  ASSERT_TRUE(until([&] { return accepting.streams.size() == 1; }));
  EXPECT_FALSE(pass_descriptors(hostile.get(), as_bytes("x"), std::array{probe.get()})) << "afterwards";
}

TEST_P(UnixTest, AFile) {
  const std::string address = "unix:" + path;
  {
    const auto listener = listen(address);
    ASSERT_TRUE(listener.has_value()) << listener.error().describe();
    EXPECT_EQ((*listener)->address(), address);
    EXPECT_TRUE(std::filesystem::is_socket(path));
    talk(address);
    talk(address);
  }
  EXPECT_FALSE(std::filesystem::exists(path)) << "the file goes with its listener";
  const auto refused = connect(address);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().text.find(path), std::string::npos);
}

TEST_P(UnixTest, AnAbstractName) {
  const std::string address = "unix:@" + path;
  const auto listener = listen(address);
  ASSERT_TRUE(listener.has_value()) << listener.error().describe();
  EXPECT_EQ((*listener)->address(), address);
  EXPECT_FALSE(std::filesystem::exists(path));
  talk(address);
  EXPECT_FALSE(listen(address).has_value()) << "it is taken";
}

TEST_P(UnixTest, AFileThatWasLeftBehindIsReplaced) {
  {
    // Leaves the file behind, as a killed server does.
    const Descriptor killed(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress address = **parse_unix("unix:" + path);
    ASSERT_EQ(bind(killed.get(), address.get(), address.size), 0);
  }
  ASSERT_TRUE(std::filesystem::is_socket(path));
  const auto listener = listen("unix:" + path);
  ASSERT_TRUE(listener.has_value()) << listener.error().describe();
  talk("unix:" + path);
}

TEST_P(UnixTest, WhatIsInUseIsNotReplaced) {
  const auto listener = listen("unix:" + path);
  ASSERT_TRUE(listener.has_value());
  const auto second = listen("unix:" + path);
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().text.find("in use"), std::string::npos) << second.error().text;
  // The server was checked for being alive.
  EXPECT_TRUE(until([&] { return accepting.streams.size() == 1; }));
  talk("unix:" + path);
  std::ofstream(folder + "/file") << "precious";
  const auto file = listen("unix:" + folder + "/file");
  ASSERT_FALSE(file.has_value());
  EXPECT_NE(file.error().text.find("no socket"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder + "/file"));
}

TEST_P(UnixTest, AFileOfAnotherIsNotRemoved) {
  auto listener = listen("unix:" + path);
  ASSERT_TRUE(listener.has_value());
  std::filesystem::remove(path);
  const auto other = listen("unix:" + path);
  ASSERT_TRUE(other.has_value());
  listener->reset();
  EXPECT_TRUE(std::filesystem::is_socket(path));
  talk("unix:" + path);
}

// The parent continues to listen there.
TEST(UnixListeningTest, AChildProcessRemovesNoFile) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "socket").string();
  const SocketAddress address = **parse_unix("unix:" + path);
  {
    Result<UnixListening> listening = listen_unix(address, 1);
    ASSERT_TRUE(listening.has_value()) << listening.error().describe();
    const pid_t child = fork();
    if (child == 0) {
      {
        const SocketFile copy = std::move(listening->file);
      }
      _exit(0);
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(std::filesystem::is_socket(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_P(UnixTest, WrongNamesAreErrors) {
  for (const std::string& address :
       {std::string("unix:"), std::string("unix:@"), "unix:/" + std::string(200, 'x'), std::string("unix:/a\0b", 9)}) {
    const auto listener = listen(address);
    ASSERT_FALSE(listener.has_value()) << address;
    EXPECT_EQ(listener.error().code, ErrorCode::invalid_argument);
    const auto stream = connect(address);
    ASSERT_FALSE(stream.has_value()) << address;
    EXPECT_EQ(stream.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_FALSE(listen("unix:/no/such/folder/socket").has_value());
}

// The kernel does not notify when a listener's queue has room again.
TEST_P(UnixTest, AFullQueueIsWaitedFor) {
  const Descriptor busy(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const SocketAddress address = **parse_unix("unix:" + path);
  ASSERT_EQ(bind(busy.get(), address.get(), address.size), 0);
  ASSERT_EQ(::listen(busy.get(), 0), 0);
  std::vector<Descriptor> waiting;
  for (;;) {
    Descriptor one(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::connect(one.get(), address.get(), address.size) != 0) break;
    waiting.push_back(std::move(one));
  }
  ASSERT_EQ(errno, EAGAIN);
  const auto late = loop.run(network.connect(loop, "unix:" + path, std::chrono::milliseconds(5)));
  ASSERT_FALSE(late.has_value());
  const auto connected = loop.run([](Loop& self, Network& from, std::string to, int fd) -> Task<bool> {
    auto connecting = from.connect(self, std::move(to), std::chrono::seconds(10));
    self.post([fd] {
      while (true) {
        const Descriptor taken(accept4(fd, nullptr, nullptr, SOCK_CLOEXEC));
        if (!taken.valid()) return;
      }
    });
    Result<std::unique_ptr<Stream>> stream = co_await std::move(connecting);
    co_return stream.has_value();
  }(loop, network, "unix:" + path, busy.get()));
  EXPECT_TRUE(connected);
}

// Servers start at one path that another one left behind. One of them gets the path and is reached there; the others
// are refused.
TEST(UnixListeningTest, OfServersThatStartTogetherOneListens) {
  const TemporaryFolder temporary;
  const std::string path = (temporary.path() / "socket").string();
  const SocketAddress address = **parse_unix("unix:" + path);
  for (int round = 0; round < 100; ++round) {
    {
      const Descriptor left(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_EQ(bind(left.get(), address.get(), address.size), 0);
    }
    constexpr std::size_t servers = 4;
    std::vector<std::optional<UnixListening>> listening(servers);
    std::barrier together(servers);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < servers; ++i) {
      threads.emplace_back([&, i] {
        together.arrive_and_wait();
        Result<UnixListening> made = listen_unix(address, 8);
        if (made) listening[i].emplace(std::move(*made));
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(std::ranges::count_if(listening, [](const auto& one) { return one.has_value(); }), 1) << round;
    const Descriptor client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(client.get(), address.get(), address.size), 0) << round;
  }
}

// As a program does that keeps its data and its socket in one folder: its earlier process was killed.
TEST(UnixListeningTest, AFileIsReplacedInAFolderThatSomebodyHasLocked) {
  const TemporaryFolder temporary;
  const std::string path = (temporary.path() / "socket").string();
  const SocketAddress address = **parse_unix("unix:" + path);
  const Descriptor folder(::open(temporary.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(folder.get(), LOCK_EX), 0);
  {
    const Descriptor left(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(left.get(), address.get(), address.size), 0);
  }
  {
    const Result<UnixListening> listening = listen_unix(address, 8);
    ASSERT_TRUE(listening) << listening.error().text;
    const auto entries = std::filesystem::directory_iterator(temporary.path());
    EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "the lock has left its file";
  }
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
}

TEST(UnixListeningTest, ALockOfAnotherProcessHoldsNobodyUp) {
  const TemporaryFolder temporary;
  const std::string path = (temporary.path() / "socket").string();
  const SocketAddress address = **parse_unix("unix:" + path);
  const std::string lock = (temporary.path() / ".socket.starting").string();
  const Descriptor locked(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(flock(locked.get(), LOCK_EX), 0);
  {
    const Result<UnixListening> fresh = listen_unix(address, 8);
    EXPECT_TRUE(fresh) << "nothing is to be replaced";
  }
  const Descriptor left(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(left.get(), address.get(), address.size), 0);
  {
    const Result<UnixListening> refused = listen_unix(address, 8);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text.find("locked " + lock), std::string::npos) << refused.error().text;
  }
  // The file of a server that was killed while it started.
  ASSERT_EQ(flock(locked.get(), LOCK_UN), 0);
  EXPECT_TRUE(listen_unix(address, 8));
}

}  // namespace
}  // namespace hawser::transport
