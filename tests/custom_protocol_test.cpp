#include "hawser/custom_protocol.h"

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "tests/background_client.h"
#include "tests/raw_peer.h"

// Protocols of users on the port of a server, by installed headers alone.
namespace hawser {
namespace {

using namespace testing_tools;

std::string shout(std::string_view text) { return std::string(text) + "!"; }

Task<std::string> slowly(Context& context, std::string_view text) {
  co_await context.loop().sleep(2ms);
  co_return std::string(text);
}

std::atomic<int> waiting_handlers{0};
std::atomic<int> stopped_handlers{0};
Task<void> wait_for_token(Context& context) {
  waiting_handlers.fetch_add(1);
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  stopped_handlers.fetch_add(1);
}

std::string not_registered() { return {}; }
std::string fail_always() { throw std::runtime_error("a secret"); }

// "@TEXT\n" is answered by "TEXT!\n".
Task<void> serve_lines(ProtocolConnection& connection) {
  for (;;) {
    const Result<std::string> line = co_await connection.receive_until("\n", 100);
    if (!line) co_return;
    const Result<std::string> reply = co_await connection.call<shout>(line->substr(1));
    static_cast<void>(co_await connection.send(reply ? *reply + "\n" : "error: " + reply.error().text + "\n"));
  }
}

using Serve = std::function<Task<void>(ProtocolConnection&)>;

class CustomProtocolTest : public ::testing::Test {
 protected:
  CustomProtocolTest() { waiting_handlers = stopped_handlers = 0; }

  void start(Serve serve = serve_lines) {
    protocol.serve = std::move(serve);
    server = std::make_unique<Server>(options);
    server->register_handler<echo, shout, slowly, wait_for_token, fail_always>();
    server->enable(protocol);
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  RawSocket connected(std::string_view bytes) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes(bytes));
    return socket;
  }
  bool all_closed() {
    return soon([&] { return server->counters().connections_open == 0 && server->counters().receive_bytes == 0; });
  }

  ServerOptions options;
  CustomProtocol protocol{.name = "lines", .match = CustomProtocol::begins_with("@"), .serve = {}};
  std::unique_ptr<Server> server;
};

TEST_F(CustomProtocolTest, LinesCallAHandler) {
  start();
  RawSocket socket = connected("@one\n@two\n");
  EXPECT_EQ(socket.receive_text("two!\n"), "one!\ntwo!\n");
  for (const char c : std::string_view("@three\n")) socket.send(as_bytes(std::string_view(&c, 1)));
  EXPECT_EQ(socket.receive_text("\n"), "three!\n");
  EXPECT_EQ(server->counters().calls, 3U);
  socket.close();
  EXPECT_TRUE(all_closed());
}

TEST_F(CustomProtocolTest, OtherProtocolsShareThePort) {
  start();
  BackgroundClient native(server->address());
  EXPECT_TRUE(native.sees_calls(1));
  EXPECT_EQ(connected("@x\n").receive_text("\n"), "x!\n");
  EXPECT_EQ(connected("nonsense").receive_all(), "unknown protocol: this port speaks hawser, lines\n");
  native.stop();
}

TEST_F(CustomProtocolTest, AClientMayEndItsDirectionAndReadTheReplies) {
  start([](ProtocolConnection& connection) -> Task<void> {
    for (;;) {
      const Result<std::string> line = co_await connection.receive_until("\n", 100);
      if (!line) co_return;
      const Result<std::string> reply = co_await connection.call<slowly>(*line);
      static_cast<void>(co_await connection.send(*reply + "\n"));
    }
  });
  RawSocket socket = connected("@a\n@b\n@c\n");
  ::shutdown(socket.fd(), SHUT_WR);
  EXPECT_EQ(socket.receive_all(), "@a\n@b\n@c\n");
  EXPECT_TRUE(all_closed());
}

Task<void> answer_slowly(ProtocolConnection& connection, std::string line) {
  const Result<std::string> reply = co_await connection.call<slowly>(line);
  static_cast<void>(co_await connection.send(reply ? *reply + "\n" : reply.error().text));
}

// The coroutine waits for the next message while its tasks answer.
TEST_F(CustomProtocolTest, TasksMayAnswerAfterTheEndOfTheClientsDirection) {
  start([](ProtocolConnection& connection) -> Task<void> {
    Scope tasks;
    for (;;) {
      const Result<std::string> line = co_await connection.receive_until("\n", SIZE_MAX);
      if (!line) break;
      tasks.spawn(answer_slowly(connection, *line));
    }
    co_await tasks.join();
    static_cast<void>(co_await connection.send("bye"));
  });
  RawSocket ended = connected("@\n@\n");
  ::shutdown(ended.fd(), SHUT_WR);
  EXPECT_EQ(ended.receive_all(), "@\n@\nbye");
  RawSocket stopped = connected("@\n@\n");
  EXPECT_TRUE(soon([&] { return server->counters().calls == 4; }));
  std::thread stopper([&] { server->stop(patience); });
  EXPECT_EQ(stopped.receive_all(), "@\n@\nbye");
  stopped.close();
  stopper.join();
}

TEST_F(CustomProtocolTest, AReplyIsDeliveredAfterTheCoroutineAlsoToAHalfClosedClient) {
  protocol.half_closed_timeout = Duration::zero();
  options.send_backlog_bytes_max = 8'000'000;
  std::atomic<bool> returned = false;
  start([&](ProtocolConnection& connection) -> Task<void> {
    static_cast<void>(co_await connection.send(text_of(7'000'000)));
    returned = true;
  });
  RawSocket socket = connected("@");
  EXPECT_TRUE(soon([&] { return returned.load(); }));
  ::shutdown(socket.fd(), SHUT_WR);
  EXPECT_EQ(socket.receive_all().size(), 7'000'000U);
}

TEST_F(CustomProtocolTest, LongMessagesAreReceivedInEachWay) {
  const std::string text = text_of(1'000'000);
  start([](ProtocolConnection& connection) -> Task<void> {
    const Result<Bytes> head = co_await connection.receive(8);
    if (!head) co_return;
    const std::size_t size = std::stoul(std::string(as_text(*head).substr(1, 7)));
    connection.consume(8);
    std::string first(size, '\0');
    if (!co_await connection.receive_into(std::as_writable_bytes(std::span(first)))) co_return;
    const Result<Bytes> second = co_await connection.receive(size);
    if (!second) co_return;
    const bool same = as_text(*second).substr(0, size) == first;
    connection.consume(size);
    const Result<std::string> third = co_await connection.receive_until("\n", size);
    static_cast<void>(co_await connection.send(same && third && *third == first ? first : "different"));
  });
  RawSocket socket = connected("@1000000");
  std::thread sender([&] { socket.send(as_bytes(text + text + text + "\n")); });
  EXPECT_TRUE(socket.receive_all() == text);
  sender.join();
  socket.close();
  EXPECT_TRUE(all_closed());
}

TEST_F(CustomProtocolTest, ErrorsNameWhatIsWrong) {
  std::string told;
  options.message_bytes_max = 4096;
  start([&](ProtocolConnection& connection) -> Task<void> {
    told = (co_await connection.receive(5000)).error().text;
    const Result<std::string> line = co_await connection.receive_until("\n", 4);
    static_cast<void>(co_await connection.send(told + "|" + line.error().text + "\n"));
    const Result<Bytes> more = co_await connection.receive(100);
    told = std::string(to_string(more.error().code)) + ": " + more.error().text;
  });
  RawSocket socket = connected("@12345678");
  EXPECT_EQ(socket.receive_text("\n"),
            "receive() of 5000 bytes exceeds message_bytes_max (4096): raise ServerOptions::message_bytes_max|"
            "the first 4 bytes have no end: end the connection, or allow more\n");
  socket.close();
  EXPECT_TRUE(all_closed());
  EXPECT_EQ(told, "protocol_error: the connection ended after 9 of at least 100 bytes of a message");
}

TEST_F(CustomProtocolTest, ErrorsSayWhyTheConnectionEnds) {
  std::atomic<int> ends = 0;
  std::string told[3];
  start([&](ProtocolConnection& connection) -> Task<void> {
    const Result<std::string> line = co_await connection.receive_until("\n", 100);
    if (!line) co_return;
    const Result<Bytes> more = co_await connection.receive();
    told[ends] = std::string(to_string(more.error().code)) + ": " + more.error().text;
    ++ends;
  });
  RawSocket ended = connected("@\n");
  ::shutdown(ended.fd(), SHUT_WR);
  EXPECT_EQ(ended.receive_all(), "");
  ended.close();
  EXPECT_TRUE(soon([&] { return ends == 1; }));
  EXPECT_TRUE(all_closed());
  RawSocket stopped = connected("@\n");
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
  server->stop(patience);
  EXPECT_EQ(ends, 2);
  EXPECT_EQ(told[0], "unavailable: the client has ended the connection");
  EXPECT_EQ(told[1], "unavailable: the server is stopping");
}

TEST_F(CustomProtocolTest, ErrorsOfHandlersReachTheCoroutine) {
  start([](ProtocolConnection& connection) -> Task<void> {
    const Result<std::string> thrown = co_await connection.call<fail_always>();
    const Result<void> late = co_await connection.call<wait_for_token>(CallOptions{.timeout = 1ms});
    const Result<std::string> unknown = co_await connection.call<not_registered>();
    static_cast<void>(co_await connection.send(std::string(to_string(thrown.error().code)) + " " +
                                               std::string(to_string(late.error().code)) + " " +
                                               std::string(to_string(unknown.error().code))));
  });
  EXPECT_EQ(connected("@").receive_all(), "internal deadline_exceeded unknown_method");
}

TEST_F(CustomProtocolTest, MetadataOfACallThatIsTooLargeIsRefusedWithItsSize) {
  start([](ProtocolConnection& connection) -> Task<void> {
    const CallOptions many{.metadata = Metadata(65, {"k", "v"})};
    const Result<std::string> refused = co_await connection.call<fail_always>(many);
    static_cast<void>(co_await connection.send(refused.error().text));
  });
  EXPECT_EQ(connected("@").receive_all(),
            "metadata of 65 entries and 325 bytes, with a key of 1 byte, exceeds a limit: send at most 64 entries, "
            "65535 bytes in all and keys of 255 bytes");
}

TEST_F(CustomProtocolTest, TheEndOfTheConnectionStopsItsCalls) {
  std::atomic<bool> ended = false;
  start([&](ProtocolConnection& connection) -> Task<void> {
    static_cast<void>(co_await connection.call<wait_for_token>());
    ended = connection.token().stop_requested();
  });
  RawSocket socket = connected("@");
  EXPECT_TRUE(soon([&] { return waiting_handlers == 1; }));
  socket.reset();
  EXPECT_TRUE(soon([&] { return stopped_handlers == 1; }));
  EXPECT_TRUE(all_closed());
  EXPECT_TRUE(ended);
}

TEST_F(CustomProtocolTest, AStopEndsIdleConnectionsAndWaitsForWork) {
  start([](ProtocolConnection& connection) -> Task<void> {
    for (;;) {
      const Result<std::string> line = co_await connection.receive_until("\n", 100);
      if (!line) co_return;
      if (*line == "@wait") static_cast<void>(co_await connection.loop().sleep(1h, connection.stopping()));
      static_cast<void>(co_await connection.send("done\n"));
    }
  });
  RawSocket idle = connected("@\n");
  EXPECT_EQ(idle.receive_text("\n"), "done\n");
  RawSocket busy = connected("@wait\n");
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 2; }));
  std::thread stopper([&] { server->stop(patience); });
  EXPECT_EQ(busy.receive_all(), "done\n");
  EXPECT_EQ(idle.receive_all(), "");
  busy.close();
  idle.close();
  stopper.join();
}

TEST_F(CustomProtocolTest, CoroutinesThatDoNotEndAreDestroyedWithTheServer) {
  struct Witness {
    std::atomic<int>& alive;
    explicit Witness(std::atomic<int>& count) : alive(count) { ++alive; }
    Witness(const Witness&) = delete;
    Witness& operator=(const Witness&) = delete;
    ~Witness() { --alive; }
  };
  std::atomic<int> alive = 0;
  start([&](ProtocolConnection& connection) -> Task<void> {
    const Witness witness(alive);
    co_await connection.loop().sleep(1h);
  });
  RawSocket stays = connected("@");
  RawSocket goes = connected("@");
  EXPECT_TRUE(soon([&] { return alive == 2; }));
  goes.reset();
  server->stop(1ms);
  server.reset();
  EXPECT_EQ(alive, 0);
}

TEST_F(CustomProtocolTest, AnExceptionIsLoggedAndEndsTheConnection) {
  std::atomic<int> logged = 0;
  options.loop.log = [&](LogLevel, std::string_view, std::string_view line) {
    if (line.contains("a private matter")) ++logged;
  };
  start([](ProtocolConnection& connection) -> Task<void> {
    static_cast<void>(co_await connection.receive());
    throw std::runtime_error("a private matter");
  });
  EXPECT_EQ(connected("@").receive_all(), "");
  EXPECT_TRUE(all_closed());
  EXPECT_EQ(logged, 1);
}

TEST_F(CustomProtocolTest, AnIdleConnectionEnds) {
  protocol.idle_timeout = 20ms;
  start();
  RawSocket socket = connected("@a\n");
  EXPECT_EQ(socket.receive_all(), "a!\n");
  socket.close();
  EXPECT_TRUE(all_closed());
}

TEST_F(CustomProtocolTest, ALineThatComesTooSlowlyEndsTheConnection) {
  options.receive_window = 50ms;
  start([](ProtocolConnection& connection) -> Task<void> {
    static_cast<void>(co_await connection.receive_until("\n", 1'000'000));
  });
  RawSocket socket = connected("@");
  EXPECT_TRUE(soon([&] {
    socket.send(as_bytes("x"));
    return server->counters().slow_peers == 1;
  }));
}

TEST_F(CustomProtocolTest, AMessageInTheApplicationsMemoryMayBeCut) {
  std::atomic<bool> ended = false;
  std::string told;
  start([&](ProtocolConnection& connection) -> Task<void> {
    std::string memory(10, '\0');
    told = (co_await connection.receive_into(std::as_writable_bytes(std::span(memory)))).error().text;
    ended = true;
  });
  connected("@234");
  EXPECT_TRUE(soon([&] { return ended.load(); }));
  EXPECT_EQ(told, "the connection ended after 4 of at least 10 bytes of a message");
}

TEST_F(CustomProtocolTest, SendWaitsForAClientThatReadsNothing) {
  options.send_backlog_bytes_max = 100'000;
  std::atomic<std::size_t> sent = 0;
  start([&](ProtocolConnection& connection) -> Task<void> {
    const std::string much = text_of(50'000);
    while (co_await connection.send(much)) sent += much.size();
  });
  RawSocket socket = connected("@");
  // It fills the buffers of the kernel, and then waits.
  std::size_t before = 1;
  EXPECT_TRUE(soon([&] {
    std::this_thread::sleep_for(20ms);
    return std::exchange(before, sent.load()) == sent.load() && sent.load() != 0;
  }));
  EXPECT_LE(server->counters().receive_bytes, 1'000'000U);
  socket.reset();
  EXPECT_TRUE(all_closed());
}

TEST_F(CustomProtocolTest, ManyShortMessagesLeaveTimeToOthers) {
  start([](ProtocolConnection& connection) -> Task<void> {
    for (;;) {
      const Result<Bytes> byte = co_await connection.receive();
      if (!byte) co_return;
      connection.consume(1);
    }
  });
  BackgroundClient native(server->address());
  RawSocket flood = connected("@");
  std::atomic<bool> ends = false;
  std::thread sender([&] {
    const std::string bytes(256 * 1024, 'x');
    while (!ends && flood.send(as_bytes(bytes))) {
    }
  });
  EXPECT_TRUE(native.sees_calls(20));
  EXPECT_EQ(native.complaint(), "");
  native.stop();
  ends = true;
  sender.join();
}

// A handler that answers at once does not suspend its caller.
TEST_F(CustomProtocolTest, ManyCallsOfHandlersLeaveTimeToOthers) {
  constexpr int calls = 3000;
  start([](ProtocolConnection& connection) -> Task<void> {
    int ticks = 0;
    int answers = 0;
    Time tick{};
    for (int i = 0; i < calls; ++i) {
      const Result<std::string> reply = co_await connection.call<shout>("a");
      answers += reply == "a!" ? 1 : 0;
      if (std::exchange(tick, Loop::current()->now()) != tick) ++ticks;
    }
    EXPECT_GE(ticks, 10);
    static_cast<void>(co_await connection.send(std::to_string(answers) + "\n"));
  });
  RawSocket socket = connected("@");
  EXPECT_EQ(socket.receive_text("\n"), std::to_string(calls) + "\n");
}

TEST_F(CustomProtocolTest, CallsThatWaitForTheirTurnMayBeDropped) {
  start([](ProtocolConnection& connection) -> Task<void> {
    int answers = 0;
    {
      Scope scope;
      for (int i = 0; i < 1000; ++i) {
        scope.spawn([](ProtocolConnection& by, int& count) -> Task<void> {
          const Result<std::string> reply = co_await by.call<shout>("a");
          count += reply ? 1 : 0;
        }(connection, answers));
      }
    }
    const Result<std::string> reply = co_await connection.call<shout>("b");
    static_cast<void>(co_await connection.send((answers < 1000 ? "" : "all ran at once, ") + *reply + "\n"));
  });
  RawSocket socket = connected("@");
  EXPECT_EQ(socket.receive_text("\n"), "b!\n");
}

TEST_F(CustomProtocolTest, IncompleteProtocolsAreRefused) {
  EXPECT_THROW(static_cast<void>(static_cast<ProtocolSpec>(CustomProtocol{})), std::logic_error);
  EXPECT_THROW(CustomProtocol::begins_with(""), std::logic_error);
  EXPECT_THROW(CustomProtocol::begins_with(std::string(25, 'x')), std::logic_error);
}

}  // namespace
}  // namespace hawser
