#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "hawser/change_option.h"
#include "tests/at_rest.h"
#include "tests/background_client.h"
#include "tests/hostile/server_fixture.h"
#include "tests/raw_peer.h"

// Faults that were found in other libraries.
namespace hawser::faults {

using namespace testing_tools;
using hostile::call_id;
using hostile::hold;
using hostile::request_of;
using wire::FrameKind;

// Returns the resident memory of this process.
std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

inline std::string zeros(std::uint32_t bytes) { return std::string(bytes, '0'); }
inline Task<std::string> slow_zeros(Context& context, std::uint32_t bytes) {
  co_await context.loop().sleep(1ms);
  co_return std::string(bytes, '0');
}

class Faults : public ::testing::Test {
 protected:
  // Starts a quiet server with the handlers that the tests call.
  RestingServer started(ServerOptions options) {
    options.loop.log = no_log();
    RestingServer server(new Server(options));
    server->register_handler<testing_tools::echo, hold, hostile::collect, hostile::pour, zeros, slow_zeros>();
    EXPECT_TRUE(server->start());
    return server;
  }
  static void expect_calm(Server& server, BackgroundClient& background_client) {
    EXPECT_TRUE(background_client.sees_calls(20));
    expect_rest(server, 1);
    background_client.stop();
    EXPECT_EQ(background_client.complaint(), "");
  }
};

// Other libraries close the socket when one call's timer expires, and all other calls fail.
TEST_F(Faults, OneTimeoutDoesNotEndItsNeighbours) {
  const auto server = started({});
  sync_wait([](const std::string& address) -> Task<void> {
    Client client;
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    Scope scope;
    int timed_out = 0;
    int answered = 0;
    auto patient = [&]() -> Task<void> {
      const CallOptions reply_options{.timeout = patience};
      auto reply = co_await client.call<slow_zeros>(reply_options, 100'000U);
      answered += reply && reply->size() == 100'000;
    };
    auto impatient = [&]() -> Task<void> {
      const CallOptions reply_options{.timeout = 2ms};
      auto reply = co_await client.call<hold>(reply_options);
      // On a busy machine the handler, which was notified, may answer before the client's timer is checked.
      if (!reply) {
        EXPECT_ERROR(reply, deadline_exceeded, "timeout");
      }
      timed_out += !reply;
    };
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 5; ++i) {
        scope.spawn(patient());
        scope.spawn(impatient());
      }
      co_await scope.join();
    }
    EXPECT_EQ(answered, 100);
    EXPECT_GT(timed_out, 0);
    EXPECT_TRUE(client.connected());
  }(server->address()));
  EXPECT_EQ(server->counters().connections_accepted, 1U);
}

// In other libraries four headers make the server allocate 16 GiB.
TEST_F(Faults, AnnouncedLengthsTakeNoMemory) {
  const auto server = started({});
  BackgroundClient background_client(server->address());
  ASSERT_TRUE(background_client.sees_calls(50));
  const std::size_t before = resident_bytes();
  constexpr std::size_t allowed = std::size_t{64} << 20;  // message_bytes_max, by default.
  {
    std::vector<RawSocket> attackers;
    for (int i = 0; i < 4; ++i) {
      RawSocket attacker = RawSocket::greeted(server->address());
      attacker.send(prefix(28, 0xffff'ffff));
      EXPECT_TRUE(attacker.closed_by_peer());
    }
    // Announces the largest head and payload that are allowed, and sends nothing more.
    Octets head(wire::header_bytes);
    write_raw_header(head.data(), request_of<testing_tools::echo>(call_id(0)));
    for (int i = 0; i < 4; ++i) {
      attackers.push_back(RawSocket::greeted(server->address()));
      attackers.back().send(i % 2 == 0 ? prefix(28, allowed - 36) + head : prefix(allowed - 8, 0) + head);
    }
    EXPECT_TRUE(background_client.sees_calls(50));
    const std::size_t grown = resident_bytes() - std::min(before, resident_bytes());
    EXPECT_LT(grown, 2 * allowed) << "of the 256 MiB announced, nothing was sent";
  }
  expect_calm(*server, background_client);
}

// A client process that is killed.
TEST_F(Faults, KilledClientsAreNoticed) {
  const auto server = started({});
  const std::string address = server->address();
  BackgroundClient background_client(address);
  ASSERT_TRUE(background_client.sees_calls(1));
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Only system calls are allowed from here on: the parent had threads.
    RawSocket peer = RawSocket::connected_to(address);
    Octets bytes = wire::encode_hello(usual_hello());
    for (std::uint32_t i = 0; i < 10; ++i) bytes = bytes + message(request_of<hold>(call_id(i)));
    for (std::uint32_t i = 10; i < 20; ++i) {
      bytes = bytes + message(request_of<hostile::collect>(call_id(i)), std::string(1, '\1'));
      bytes = bytes + message({.kind = FrameKind::stream_data, .call = call_id(i)}, text_body("item"));
    }
    for (std::uint32_t i = 20; i < 30; ++i) bytes = bytes + message(request_of<hostile::pour>(call_id(i)));
    peer.send(bytes);
    static_cast<void>(!write(ready[1], "x", 1));
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 30; }));
  EXPECT_EQ(server->counters().connections_open, 2U);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  expect_calm(*server, background_client);
}

// A process that was stopped for a while sends a PING to its peers before it gives them up.
TEST_F(Faults, TimeInWhichTheLoopDidNotRunIsNotThePeers) {
  RawListener listener;
  std::thread peer([&] {
    RawSocket patient = listener.accept_greeted();
    EXPECT_TRUE(patient.receive_frame(FrameKind::ping));
    patient.closed_by_peer();
  });
  sync_wait([](const std::string& address) -> Task<void> {
    Client client({.ping_interval = 200ms});
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    std::this_thread::sleep_for(1s);
    co_await Loop::current()->sleep(Duration::zero());
    EXPECT_TRUE(client.connected());
  }(listener.address()));
  peer.join();
}

// A client that never reads its replies.
TEST_F(Faults, SlowReadersDoNotFillTheServer) {
  const auto server = started({.send_backlog_bytes_max = 1 << 20});
  BackgroundClient background_client(server->address());
  ASSERT_TRUE(background_client.sees_calls(50));
  const std::size_t before = resident_bytes();
  RawSocket slow = RawSocket::greeted(server->address());
  std::string body(4, '\0');
  store_le(reinterpret_cast<std::byte*>(body.data()), std::uint32_t{1 << 20});
  std::size_t asked = 0;
  // Each request has a reply of 1 MiB, 1 GiB in total. The server stops reading long before the last.
  for (std::uint32_t i = 0; i < 1'024; ++i) {
    const Octets request = message(request_of<zeros>(call_id(i % 4'000)), body);
    asked += slow.send_some(request) == request.size();
  }
  EXPECT_TRUE(background_client.sees_calls(50));
  const std::size_t grown = resident_bytes() - std::min(before, resident_bytes());
  EXPECT_LT(grown, std::size_t{256} << 20) << "after " << asked << " requests";
  EXPECT_EQ(background_client.complaint(), "");
  // The client reads nothing, so the server gives it up. The background client has ended before: on a busy machine, it
  // might answer no ping within short intervals.
  background_client.stop();
  EXPECT_OK(change_option(*server, &ServerOptions::ping_interval, 50ms));
  expect_rest(*server);
}

// Freed memory that the process keeps. The address sanitizer keeps 256 MiB by default, also of the blocks that a
// connection frees and allocates again each time its turn ends.
#ifdef HAWSER_SANITIZED
constexpr std::size_t kept_bytes_max = std::size_t{256} << 20;
#else
constexpr std::size_t kept_bytes_max = 0;
#endif

// A client that sends many PINGs and reads none of the answers.
TEST_F(Faults, PingsThatAreNotReadDoNotFillTheServer) {
  const auto server = started({});
  BackgroundClient background_client(server->address());
  ASSERT_TRUE(background_client.sees_calls(50));
  RawSocket flood = RawSocket::greeted(server->address());
  const int small = 4'096;
  setsockopt(flood.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  Octets pings;
  const Octets ping = message({.kind = FrameKind::ping});
  pings.reserve(10'000 * ping.size());
  for (int i = 0; i < 10'000; ++i) pings.insert(pings.end(), ping.begin(), ping.end());
  const std::size_t before = resident_bytes();
  // 216 MB of PINGs; the answers would have the same size. Once the client's receive buffer is full, Linux drops the
  // server's acknowledgements, and the client may not be able to send any more although the server reads everything.
  for (int i = 0; i < 600; ++i) {
    if (!flood.send(pings, 500ms)) break;
  }
  EXPECT_TRUE(background_client.sees_calls(50));
  const std::size_t grown = resident_bytes() - std::min(before, resident_bytes());
  EXPECT_LT(grown, kept_bytes_max + (std::size_t{100} << 20));
  flood.close();
  expect_calm(*server, background_client);
}

// A client that sends a frame byte by byte delays no other client.
TEST_F(Faults, FramesByteByByteStallNobody) {
  const auto server = started({});
  BackgroundClient background_client(server->address());
  const Octets request = message(request_of<testing_tools::echo>(call_id(0)), text_body("hello"));
  RawSocket slow = RawSocket::greeted(server->address());
  for (std::size_t i = 0; i < request.size(); ++i) {
    slow.send(Bytes(request).subspan(i, 1));
    EXPECT_TRUE(background_client.sees_calls(2));
  }
  EXPECT_TRUE(slow.receive_frame(FrameKind::response));
  slow.close();
  expect_calm(*server, background_client);
}

// The opposite direction: a server that has become silent while calls wait for it.
TEST_F(Faults, SilentServersAreGivenUp) {
  RawListener listener;
  std::atomic<bool> done{false};
  std::thread peer([&] {
    RawSocket silent = listener.accept_greeted();
    while (!done.load()) std::this_thread::sleep_for(1ms);
  });
  sync_wait([](const std::string& address) -> Task<void> {
    Client client({.call_timeout = forever, .ping_interval = 50ms});
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    auto reply = co_await client.call<testing_tools::echo>("anybody there?");
    EXPECT_ERROR(reply, outcome_unknown, "no sign of life");
    auto late = co_await client.call<testing_tools::echo>("late");
    EXPECT_ERROR(late, not_sent, "no sign of life");
  }(listener.address()));
  done.store(true);
  peer.join();
}

}  // namespace hawser::faults
