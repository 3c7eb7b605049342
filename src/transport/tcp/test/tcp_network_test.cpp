#include "transport/tcp/tcp_network.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/scope.h"
#include "transport/common/framed_connection.h"
#include "transport/common/test/framed_testing.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/test/tcp_testing.h"

namespace {

// The errors with which the next calls of accept4() fail.
std::vector<int> accept_errors;

}  // namespace

extern "C" int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  if (!accept_errors.empty()) {
    errno = accept_errors.front();
    accept_errors.erase(accept_errors.begin());
    return -1;
  }
  return static_cast<int>(syscall(SYS_accept4, fd, address, size, flags));
}

namespace hawser::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Accepting final : AcceptSink {
  void accepted(std::unique_ptr<Stream> stream) override { streams.push_back(std::move(stream)); }
  std::vector<std::unique_ptr<Stream>> streams;
};

class TcpNetworkTest : public TcpLoopTest {
 protected:
  std::unique_ptr<Listener> listen(std::string_view address = "127.0.0.1:0") {
    Result<std::unique_ptr<Listener>> listener = network.listen(loop, address, accepting);
    EXPECT_TRUE(listener.has_value()) << listener.error().describe();
    return listener ? std::move(*listener) : nullptr;
  }
  Result<std::unique_ptr<Stream>> connect(std::string address, Duration timeout = seconds(10)) {
    return loop.run(network.connect(loop, std::move(address), timeout));
  }

  Accepting accepting;
  TcpNetwork network;
};
INSTANTIATE_TEST_SUITE_P(Kinds, TcpNetworkTest, exec::every_loop(), exec::name_of);

TEST_P(TcpNetworkTest, BothEndsFindVanishedHosts) {
  const auto listener = listen();
  const auto connected = connect(listener->address());
  ASSERT_TRUE(connected);
  ASSERT_TRUE(until([&] { return accepting.streams.size() == 1; }));
  int kept_alive = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    int value = 0;
    socklen_t size = sizeof value;
    if (getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &size) != 0 || value == 0) continue;
    EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, &size), 0);
    EXPECT_EQ(value, keep_alive_idle_seconds);
    ++kept_alive;
  }
  EXPECT_EQ(kept_alive, 2);
}

TEST_P(TcpNetworkTest, ConnectsAndTalks) {
  const auto listener = listen();
  EXPECT_EQ(listener->address().rfind("127.0.0.1:", 0), 0U);
  EXPECT_NE(listener->address(), "127.0.0.1:0");
  Result<std::unique_ptr<Stream>> client = connect(listener->address());
  ASSERT_TRUE(client.has_value()) << client.error().describe();
  ASSERT_TRUE(until([&] { return accepting.streams.size() == 1; }));
  Stream& server = *accepting.streams[0];
  EXPECT_EQ((*client)->peer(), listener->address());
  EXPECT_EQ((*client)->local(), server.peer());
  EXPECT_EQ(server.transport(), "tcp");
  talk_and_end(**client, accepting.streams);
}

int send_buffer_of(int fd) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size), 0);
  return bytes;
}

// A socket that is connected from 127.0.0.1 to `host`.
struct Connected {
  explicit Connected(std::string_view host) {
    const auto where = resolve({std::string(host), "0"}, true, false);
    const auto from = resolve({"127.0.0.1", "0"}, true, false);
    SocketAddress address = where.value().front();
    auto* const name = reinterpret_cast<sockaddr*>(&address.storage);
    const bool connected = bind(listener.get(), name, address.size) == 0 && ::listen(listener.get(), 1) == 0 &&
                           getsockname(listener.get(), name, &address.size) == 0 &&
                           bind(client.get(), from.value().front().get(), from.value().front().size) == 0 &&
                           ::connect(client.get(), name, address.size) == 0;
    EXPECT_TRUE(connected) << std::strerror(errno);
  }
  Descriptor listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Descriptor client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

TEST(TcpSocketTest, OnlyAConnectionWithinTheMachineHasItsSendBufferBounded) {
  const Connected within("127.0.0.1");
  bound_local_send_buffer(within.client.get());
  EXPECT_LE(send_buffer_of(within.client.get()), 2 * local_send_buffer_bytes);
  // The two ends have different addresses, as across machines, so the kernel determines the size.
  const Connected across("127.0.0.2");
  const int before = send_buffer_of(across.client.get());
  EXPECT_GT(before, 2 * local_send_buffer_bytes);
  bound_local_send_buffer(across.client.get());
  EXPECT_EQ(send_buffer_of(across.client.get()), before);
}

TEST_P(TcpNetworkTest, ManyConnectAtOnce) {
  const auto listener = listen();
  std::vector<std::unique_ptr<Stream>> clients;
  for (int i = 0; i < 50; ++i) {
    Result<std::unique_ptr<Stream>> client = connect(listener->address());
    ASSERT_TRUE(client.has_value());
    clients.push_back(std::move(*client));
  }
  EXPECT_TRUE(until([&] { return accepting.streams.size() == 50; }));
}

TEST_P(TcpNetworkTest, NamesAreResolved) {
  const auto listener = listen();
  const std::string port = listener->address().substr(listener->address().rfind(':'));
  EXPECT_TRUE(connect("localhost" + port).has_value());
  const auto unknown = connect("no-such-host.invalid" + port);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::unavailable);
  EXPECT_NE(unknown.error().text.find("no-such-host.invalid"), std::string::npos);
}

TEST_P(TcpNetworkTest, IPv6) {
  Result<std::unique_ptr<Listener>> listener = network.listen(loop, "[::1]:0", accepting);
  if (!listener) GTEST_SKIP() << "this host has no IPv6: " << listener.error().text;
  EXPECT_EQ((*listener)->address().rfind("[::1]:", 0), 0U);
  EXPECT_TRUE(connect((*listener)->address()).has_value());
}

TEST_P(TcpNetworkTest, ListensOnEachAddressOfAHost) {
  if (!network.listen(loop, "[::1]:0", accepting)) GTEST_SKIP() << "this host has no IPv6";
  std::unique_ptr<Listener> listener = listen("*:0");
  ASSERT_NE(listener, nullptr);
  const std::string address = listener->address();
  const std::string port = address.substr(address.rfind(':') + 1);
  EXPECT_TRUE(connect("127.0.0.1:" + port).has_value());
  EXPECT_TRUE(connect("[::1]:" + port).has_value());
  ASSERT_TRUE(until([&] { return accepting.streams.size() == 2; }));
  // Rules for addresses would not find "[::ffff:127.0.0.1]".
  std::vector<std::string> peers;
  for (const auto& stream : accepting.streams) peers.push_back(stream->peer());
  EXPECT_THAT(peers, testing::UnorderedElementsAre(testing::StartsWith("127.0.0.1:"), testing::StartsWith("[::1]:")));
  listener.reset();
  EXPECT_NE(listen("*:" + port), nullptr) << "both sockets were closed";
}

// Clients that use the address of another server would get its answers.
TEST_P(TcpNetworkTest, DoesNotListenOnAPartOfAHost) {
  std::unique_ptr<Listener> other = listen("0.0.0.0:0");
  ASSERT_NE(other, nullptr);
  const std::string address = other->address();
  const Result<std::unique_ptr<Listener>> listener =
      network.listen(loop, "*" + address.substr(address.rfind(':')), accepting);
  ASSERT_FALSE(listener.has_value());
  EXPECT_THAT(listener.error().text, testing::HasSubstr("(" + address + ")"));
}

TEST_P(TcpNetworkTest, NobodyListens) {
  std::string address;
  address = listen()->address();
  const auto refused = connect(address);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(refused.error().not_executed());
  EXPECT_NE(refused.error().text.find(address), std::string::npos) << refused.error().text;
}

// The kernel must release the port when the listener is destroyed, not when the loop runs next.
TEST_P(TcpNetworkTest, APortIsFreeOnceItsListenerIsGone) {
  auto listener = listen();
  turns(2);
  const std::string address = listener->address();
  const auto taken = network.listen(loop, address, accepting);
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code, ErrorCode::unavailable);
  listener.reset();
  const auto again = network.listen(loop, address, accepting);
  EXPECT_TRUE(again.has_value()) << again.error().describe();
}

TEST_P(TcpNetworkTest, WrongAddressesSayWhatIsWrong) {
  const std::string zero("127.0.0.1\0.example:80", 21);
  for (const std::string& address : std::vector<std::string>{"", "host", "host:", "host:70000", "host:http", "::1:80",
                                                             "a:b:80", "tcp://host:80", zero}) {
    const auto listener = network.listen(loop, address, accepting);
    ASSERT_FALSE(listener.has_value()) << address;
    EXPECT_EQ(listener.error().code, ErrorCode::invalid_argument) << address;
    const auto client = connect(address);
    ASSERT_FALSE(client.has_value()) << address;
    EXPECT_EQ(client.error().code, ErrorCode::invalid_argument) << address;
  }
  const auto url = connect("http://127.0.0.1:80");
  ASSERT_FALSE(url.has_value());
  EXPECT_THAT(url.error().text, ::testing::HasSubstr("is a URL: write its host and its port alone"));
}

// A listener whose queue is full drops new connections, so an attempt is not answered.
class Unanswering {
 public:
  Unanswering() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), size);
    ::listen(listener_.get(), 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size);
    for (int i = 0; i < 4; ++i) {
      fill_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      ::connect(fill_.back().get(), reinterpret_cast<sockaddr*>(&address_), size);
    }
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }

 private:
  Descriptor listener_;
  sockaddr_in address_{};
  std::vector<Descriptor> fill_;
};

TEST_P(TcpNetworkTest, GivesUpAfterItsTime) {
  const Unanswering peer;
  const Time start = loop.poller().now();
  const auto client = connect(peer.address(), milliseconds(20));
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code, ErrorCode::unavailable);
  EXPECT_GE(loop.poller().now() - start, milliseconds(20));
  EXPECT_LT(loop.poller().now() - start, seconds(60));
}

TEST_P(TcpNetworkTest, DroppingTheTaskWithdrawsTheAttempt) {
  const Unanswering peer;
  loop.run([](Loop& self, TcpNetwork& over, std::string address) -> Task<void> {
    {
      Scope scope;
      scope.spawn([](Loop& on, TcpNetwork& tcp, std::string to) -> Task<void> {
        const auto client = co_await tcp.connect(on, std::move(to), forever);
        ADD_FAILURE() << "resumed after its end";
      }(self, over, std::move(address)));
      co_await self.sleep(milliseconds(2));
    }
    co_await self.sleep(milliseconds(5));
  }(loop, network, peer.address()));
}

// A listener that runs out of descriptors logs it and tries again, because connections that wait in the kernel raise no
// new edge.
TEST_P(TcpNetworkTest, AcceptsAgainWhenDescriptorsAreFree) {
  std::vector<std::string> lines;
  LoopOptions options = exec::options_of(GetParam());
  options.log = [&lines](LogLevel, std::string_view, std::string_view text) { lines.emplace_back(text); };
  Loop logging(options);
  Result<std::unique_ptr<Listener>> listener = network.listen(logging, "127.0.0.1:0", accepting);
  ASSERT_TRUE(listener.has_value());
  Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const std::string address = (*listener)->address();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const auto run = [&](Duration duration) {
    logging.run([](Loop& self, Duration time) -> Task<void> { co_await self.sleep(time); }(logging, duration));
  };
  // The vptr sanitizer needs descriptors when it sees a type for the first time, so all types are used before.
  logging.log(LogLevel::debug, "test", socket_error(ErrorCode::limit_exceeded, "first line", EMFILE).text);
  {
    const Descriptor first(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    ::connect(first.get(), reinterpret_cast<sockaddr*>(&to), sizeof to);
    for (int i = 0; i < 1500 && accepting.streams.empty(); ++i) run(milliseconds(20));
    ASSERT_EQ(accepting.streams.size(), 1U);
  }
  accepting.streams.clear();
  lines.clear();
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  // Uses up every free number below the lowered limit.
  std::vector<Descriptor> all;
  const rlimit low{.rlim_cur = 256, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &low);
  for (;;) {
    Descriptor one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!one.valid()) break;
    all.push_back(std::move(one));
  }
  ::connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof to);
  const auto refused = [&] {
    return std::ranges::any_of(lines, [](const std::string& line) { return line.contains("cannot accept"); });
  };
  for (int i = 0; i < 1500 && !refused(); ++i) run(milliseconds(20));
  EXPECT_TRUE(refused());
  EXPECT_TRUE(accepting.streams.empty());
  all.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  for (int i = 0; i < 1500 && accepting.streams.empty(); ++i) run(milliseconds(20));
  EXPECT_EQ(accepting.streams.size(), 1U);
  accepting.streams.clear();
}

// Accepting continues after any error.
TEST_P(TcpNetworkTest, AnErrorOfOneAcceptDoesNotEndAccepting) {
  const auto listener = listen();
  accept_errors = {EPERM, ENETDOWN, EINTR, EHOSTUNREACH, EIO, EBADMSG};
  EXPECT_TRUE(connect(listener->address()));
  EXPECT_TRUE(until([&] { return accepting.streams.size() == 1; }));
  EXPECT_TRUE(accept_errors.empty());
  // The errors do not end, and the loop still has its turns.
  accept_errors.assign(1000, ECONNABORTED);
  EXPECT_TRUE(connect(listener->address()));
  turns(3);
  EXPECT_GT(accept_errors.size(), 500U);
  accept_errors.clear();
  EXPECT_TRUE(until([&] { return accepting.streams.size() == 2; }));
}

// ---- The connections that wait when the server stops ----

// Clients of a listener on a Unix socket, where connect() returns when the connection waits. The loop does not run.
class TcpNetworkStop : public TcpNetworkTest {
 protected:
  void listen_with(std::size_t clients) {
    LoopOptions of_loop = exec::options_of(GetParam());
    of_loop.log = [this](LogLevel, std::string_view, std::string_view text) { lines.emplace_back(text); };
    logging.emplace(of_loop);
    const std::string path = folder.path().string() + "/socket";
    listener = network.listen(*logging, "unix:" + path, accepting).value();
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    ASSERT_LT(path.size(), sizeof to.sun_path);
    std::memcpy(to.sun_path, path.c_str(), path.size());
    while (connected.size() < clients) {
      connected.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      ASSERT_EQ(::connect(connected.back().get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0)
          << std::strerror(errno);
    }
  }
  ~TcpNetworkStop() override {
    accepting.streams.clear();
    listener.reset();
  }

  const TemporaryFolder folder;
  std::vector<std::string> lines;
  std::optional<Loop> logging;
  std::unique_ptr<Listener> listener;
  std::vector<Descriptor> connected;
};
INSTANTIATE_TEST_SUITE_P(Kinds, TcpNetworkStop, exec::every_loop(), exec::name_of);

TEST_P(TcpNetworkStop, AcceptsInPortions) {
  listen_with(100);
  accept_errors = {ECONNABORTED, EINTR};
  EXPECT_TRUE(listener->accept_waiting());
  EXPECT_EQ(accepting.streams.size(), 62U) << "so that others get their turn";
  EXPECT_FALSE(listener->accept_waiting());
  EXPECT_EQ(accepting.streams.size(), 100U);
  EXPECT_TRUE(lines.empty());
}

TEST_P(TcpNetworkStop, SaysThatTheRestIsReset) {
  listen_with(10);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  // The vptr sanitizer needs descriptors when it sees a type for the first time.
  logging->log(LogLevel::debug, "test", socket_error(ErrorCode::limit_exceeded, "first line", EMFILE).text);
  lines.clear();
  const rlimit low{.rlim_cur = 256, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &low);
  std::vector<Descriptor> all;  // Uses up every free number below the lowered limit.
  for (;;) {
    Descriptor one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!one.valid()) break;
    all.push_back(std::move(one));
  }
  all.resize(all.size() - 3);
  EXPECT_FALSE(listener->accept_waiting());
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(accepting.streams.size(), 3U);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines.front(), ::testing::HasSubstr("connections that wait are reset because the server stops and cannot "
                                                  "accept them (raise ulimit -n?)"));
}

// ---- Framed connections over real sockets ----

// Sends every message back, head and payload.
struct EchoSink final : MessageSink {
  void on_message(const Message& message) override {
    std::byte* const to = connection->reserve(message.head.size());
    ASSERT_NE(to, nullptr);
    std::memcpy(to, message.head.data(), message.head.size());
    const ConstBuffer piece{message.payload.data(), message.payload.size()};
    connection->commit(message.head.size(), std::span(&piece, 1), nullptr);
  }
  ReceiveBuffer select_receive_buffer(Bytes, std::size_t) override { return {}; }
  void on_drained() override {}
  void on_closed(const Error&) override { ++closed; }
  Connection* connection = nullptr;
  int closed = 0;
};

struct Owner final : SendCompletion {
  void on_send_complete() noexcept override { ++notified; }
  int notified = 0;
};

TEST_P(TcpNetworkTest, MessagesOfEverySizeComeBack) {
  const auto listener = listen();
  Result<std::unique_ptr<Stream>> stream = connect(listener->address());
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE(until([&] { return accepting.streams.size() == 1; }));
  EchoSink echo;
  RecordingSink sink;
  sink.receive_buffer = ReceiveBuffer::Kind::given;
  // Handshakes start streams with their own sinks.
  TestSink none;
  (*stream)->start(loop, none);
  accepting.streams[0]->start(loop, none);
  FramedConnection client(loop, std::move(*stream), {});
  FramedConnection server(loop, std::move(accepting.streams[0]), {});
  echo.connection = &server;
  sink.connection = &client;
  client.start(sink);
  server.start(echo);
  std::mt19937_64 random(11);
  Owner owner;
  std::vector<std::string> payloads;
  std::vector<RecordingSink::Received> expected;
  for (unsigned i = 0; i < 150; ++i) {
    const std::size_t size = i % 30 == 29 ? 3'000'000 + i : random() % (std::size_t{1} << (random() % 18 + 1));
    payloads.push_back(test_bytes(size, i));
    expected.push_back({test_bytes(random() % 300, i), payloads.back(), false});
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string& head = expected[i].head;
    std::memcpy(client.reserve(head.size()), head.data(), head.size());
    client.commit(head.size(), std::array{ConstBuffer{as_bytes(payloads[i]).data(), payloads[i].size()}}, &owner);
    if (i % 10 == 0) turns(1);
    if (i % 40 == 20) {
      client.pause();
      turns(3);
      client.resume();
    }
  }
  ASSERT_TRUE(until([&] { return sink.messages.size() == expected.size(); })) << sink.messages.size();
  EXPECT_TRUE(sink.messages == expected);
  EXPECT_GT(sink.in_given, 0);
  EXPECT_EQ(owner.notified, 150);
  EXPECT_EQ(client.sent(), client.committed());
  EXPECT_EQ(client.transport(), "tcp");
  client.close();
  EXPECT_TRUE(until([&] { return echo.closed == 1; }));
  server.abort();
  EXPECT_TRUE(until([&] { return sink.closed.size() == 1; }));
}

// A client was killed with replies unread. The connection ends although it is not read, whether or not there is
// something left to send.
TEST_P(TcpNetworkTest, APausedConnectionEndsWhenItsPeerHasGone) {
  const auto listener = listen();
  for (const std::size_t bytes : {1UL, 30'000'000UL}) {
    Result<std::unique_ptr<Stream>> stream = connect(listener->address());
    ASSERT_TRUE(stream.has_value());
    ASSERT_TRUE(until([&] { return accepting.streams.size() == 1; }));
    TestSink peer_sink;
    TestSink none;
    (*stream)->start(loop, peer_sink);
    (*stream)->pause();
    (*stream)->send(std::array{ConstBuffer{as_bytes("request").data(), 7}});
    turns(3);
    accepting.streams[0]->start(loop, none);
    FramedConnection server(loop, std::move(accepting.streams[0]), {});
    accepting.streams.clear();
    RecordingSink sink;
    server.start(sink);
    server.pause();
    const std::string payload = test_bytes(bytes);
    Owner owner;
    std::memcpy(server.reserve(1), "h", 1);
    server.commit(1, std::array{ConstBuffer{as_bytes(payload).data(), payload.size()}}, &owner);
    turns(5);
    EXPECT_EQ(server.backlog() > 0, bytes > 1);
    stream->reset();  // The stream has unread bytes, so the server receives a reset.
    EXPECT_TRUE(until([&] { return sink.closed.size() == 1; })) << bytes;
    EXPECT_EQ(owner.notified, 1);
  }
}

// An aborted connection is not called any more, not even for events of its stream in the same turn.
TEST_P(TcpNetworkTest, AnAbortedConnectionMayBeDestroyedAtOnce) {
  const auto listener = listen();
  Result<std::unique_ptr<Stream>> stream = connect(listener->address());
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE(until([&] { return accepting.streams.size() == 1; }));
  TestSink peer_sink;
  TestSink none;
  accepting.streams[0]->start(loop, peer_sink);
  accepting.streams[0]->pause();
  (*stream)->start(loop, none);
  auto client = std::make_unique<FramedConnection>(loop, std::move(*stream), FramedOptions{});
  RecordingSink sink;
  client->start(sink);
  const std::string payload = test_bytes(30'000'000);
  Owner owner;
  std::memcpy(client->reserve(1), "h", 1);
  client->commit(1, std::array{ConstBuffer{as_bytes(payload).data(), payload.size()}}, &owner);
  turns(2);
  EXPECT_GT(client->backlog(), 0U);

  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  TcpStream trigger{Descriptor(ends[0])};
  const Descriptor trigger_peer(ends[1]);
  TestSink trigger_sink;
  trigger_sink.on_received = [&] {
    client->abort();
    EXPECT_EQ(owner.notified, 1);
    EXPECT_EQ(client->reserve(1), nullptr);
    client->pause();
    client->resume();
    client->flush();
    client->close();
    client.reset();
  };
  trigger.start(loop, trigger_sink);
  turns(2);
  // The trigger is ready first. In the same turn the client may send more, because its peer reads.
  ASSERT_EQ(::send(trigger_peer.get(), "x", 1, 0), 1);
  accepting.streams[0]->resume();
  EXPECT_TRUE(until([&] { return client == nullptr; }));
  EXPECT_TRUE(until([&] { return peer_sink.ends.size() == 1; }));
  EXPECT_TRUE(sink.closed.empty());
}

}  // namespace
}  // namespace hawser::transport
