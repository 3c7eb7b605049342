#include "hawser/grpc.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "hawser/hawser.h"
#include "hawser/interceptor.h"
#include "protocol/grpc/test/machine_pair.h"
#include "tests/background_client.h"
#include "tests/grpc/raw_service.h"
#include "tests/python_process.h"
#include "tests/raw_peer.h"

// A server that speaks gRPC, with clients of grpcio (Debian: python3-grpcio).
namespace hawser {
namespace {

using namespace testing_tools;
namespace h2 = protocol::grpc::testing;

// A running grpcio client, which makes the calls of one function of tests/grpc/client.py.
class FrameClient : public PythonProcess {
 public:
  FrameClient(const std::string& address, std::string_view name)
      : PythonProcess(std::filesystem::path(__FILE__).parent_path() / "grpc" / "client.py",
                      "'" + address + "' " + std::string(name)) {}
};

class Grpc : public ::testing::Test {
 protected:
  void start(GrpcOptions grpc_options = {}) {
    options.loop.log = [](LogLevel, std::string_view, std::string_view) {};
    server = std::make_unique<Server>(options);
    if (intercepted) {
      server->use([](IncomingCall& call, Next next) -> Task<Result<void>> {
        co_await call.loop().sleep(1ms);
        co_return co_await next();
      });
    }
    register_raw_service(*server);
    server->register_handler<testing_tools::echo>();
    server->enable(grpc(grpc_options));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  void run(std::string_view name) {
    FrameClient client(server->address(), name);
    const int status = client.wait();
    if (status == FrameClient::skipped) GTEST_SKIP() << client.output;
    EXPECT_EQ(status, 0) << client.output;
    EXPECT_EQ(server->counters().protocol_errors, 0U);
  }

  ServerOptions options;
  bool intercepted = false;
  std::unique_ptr<Server> server;
};

TEST_F(Grpc, Unary) {
  start();
  run("unary");
}
TEST_F(Grpc, InterceptorsChangeNothingForTheCaller) {
  intercepted = true;
  start();
  for (const char* name : {"unary", "streams", "deadline", "cancellation", "metadata", "errors"}) run(name);
}
TEST_F(Grpc, Streams) {
  start();
  run("streams");
}
TEST_F(Grpc, PingPong) {
  start();
  run("ping_pong");
}
TEST_F(Grpc, Deadline) {
  start();
  run("deadline");
}
TEST_F(Grpc, Cancellation) {
  start();
  run("cancellation");
}
TEST_F(Grpc, MetadataBothWays) {
  start();
  run("metadata");
}
TEST_F(Grpc, LargeMessages) {
  start({.message_bytes_max = std::size_t{9} << 20});
  run("large");
}
TEST_F(Grpc, TooLargeMessages) {
  start();
  run("too_large");
}
TEST_F(Grpc, Errors) {
  start();
  run("errors");
}
TEST_F(Grpc, Compression) {
  start();
  run("compression");
}
TEST_F(Grpc, CompressedReplies) {
  start({.compression = GrpcCompression::gzip});
  run("streams");
}
TEST_F(Grpc, ManyConnections) {
  options.threads = 2;
  start();
  run("connections");
}
TEST_F(Grpc, TinyWindowsAndBlocks) {
  options.stream_window_bytes = 1000;
  start({.stream_window_bytes = 65'535, .connection_window_bytes = 65'535});
  run("streams");
}

TEST_F(Grpc, ManyCallsOfTheOwnProtocolAtTheSameTime) {
  start();
  BackgroundClient native(server->address());
  run("steady");
  EXPECT_TRUE(native.sees_calls(5));
  EXPECT_EQ(native.complaint(), "");
  native.stop();
}

TEST_F(Grpc, AGracefulStopLetsStreamsEnd) {
  start();
  FrameClient client(server->address(), "stopping");
  const std::string first = client.line();
  if (first != "watching\n") {
    client.output = first;
    const int status = client.wait();
    if (status == FrameClient::skipped) GTEST_SKIP() << client.output;
    FAIL() << client.output;
  }
  server->stop(patience);
  EXPECT_EQ(client.wait(), 0) << client.output;
  EXPECT_EQ(server->counters().connections_open, 0U);
  EXPECT_EQ(raw_handlers_running(), 0);
}

// ---- Hostile clients ----

// Sends `hello`, then what `next(i)` gives. Returns true if the server closes the connection.
bool attack(const std::string& address, const std::function<std::string(std::size_t)>& next) {
  RawSocket socket = RawSocket::connected_to(address);
  socket.send(as_bytes(h2::hello()));
  std::string parts;
  for (std::size_t i = 0; i < 5000; ++i) {
    parts += next(i);
    if (parts.size() < 10'000) continue;
    if (!socket.send(as_bytes(parts))) return true;
    parts.clear();
  }
  return !socket.send(as_bytes(parts)) || socket.closed_by_peer();
}

std::string open_call(std::size_t i, std::string_view path) {
  return h2::frame(1, 4, static_cast<std::uint32_t>(2 * i + 1), h2::request_fields(path));
}
std::string reset_call(std::size_t i) {
  return h2::frame(3, 0, static_cast<std::uint32_t>(2 * i + 1), std::string("\0\0\0\10", 4));
}

struct Attack {
  const char* name;
  std::function<std::string(std::size_t)> next;
};

class GrpcAttack : public Grpc, public ::testing::WithParamInterface<Attack> {};

// The attacker is cut off. A good client goes on meanwhile, and nothing of the attacker is left.
TEST_P(GrpcAttack, EndsWhileAGoodClientGoesOn) {
  start({.idle_frames_per_second = 1});  // The attacker may be slow.
  BackgroundClient native(server->address());
  FrameClient good(server->address(), "steady");
  EXPECT_TRUE(attack(server->address(), GetParam().next));
  const int status = good.wait();
  if (status != FrameClient::skipped) {
    EXPECT_EQ(status, 0) << good.output;
  }
  EXPECT_TRUE(native.sees_calls(5));
  EXPECT_EQ(native.complaint(), "");
  native.stop();
  EXPECT_GE(server->counters().protocol_errors, 1U);
  for (const auto end = std::chrono::steady_clock::now() + patience;
       server->counters().connections_open != 0 && std::chrono::steady_clock::now() < end;) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(server->counters().connections_open, 0U);
  EXPECT_EQ(server->counters().calls_in_flight, 0U);
  EXPECT_EQ(raw_handlers_running(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Floods, GrpcAttack,
    ::testing::Values(
        Attack{"RapidReset", [](std::size_t i) { return open_call(i, "/test.Raw/Converse") + reset_call(i); }},
        Attack{"Ping", [](std::size_t) { return h2::frame(6, 0, 0, "12345678"); }},
        Attack{"Settings", [](std::size_t) { return h2::frame(4, 0, 0, {}); }},
        Attack{"Continuation",
               [](std::size_t i) {
                 return i == 0 ? h2::frame(1, 0, 1, h2::request_fields("/x"))
                               : h2::frame(9, 0, 1, h2::hpack({{"a", "b"}}));
               }},
        Attack{"EmptyData",
               [](std::size_t i) { return i == 0 ? open_call(0, "/test.Raw/Sum") : h2::frame(0, 0, 1, {}); }},
        Attack{"WindowUpdates", [](std::size_t) { return h2::frame(8, 0, 0, std::string("\0\0\0\1", 4)); }},
        Attack{"Priority", [](std::size_t) { return h2::frame(2, 0, 1, std::string("\0\0\0\3\1", 5)); }},
        Attack{"Unknown", [](std::size_t) { return h2::frame(0x77, 0, 0, "x"); }},
        Attack{"CausedResets",
               [](std::size_t i) {
                 return open_call(i, "/test.Raw/Converse") +
                        h2::frame(8, 0, static_cast<std::uint32_t>(2 * i + 1), "\x7f\xff\xff\xff");
               }},
        Attack{"HeaderList",
               [](std::size_t i) {
                 std::string block = h2::request_fields("/x");
                 block += std::string("\x40\x03x-a", 5) + std::string("\x7f\xa1\x1e", 3) + std::string(4000, 'v');
                 return h2::frame(1, 4, static_cast<std::uint32_t>(2 * i + 1), block + std::string(8000, '\xbe'));
               }},
        Attack{"Garbage", [](std::size_t) { return std::string(100, '\xff'); }}),
    [](const auto& given) { return given.param.name; });

TEST_F(Grpc, AClientAtFullSpeedIsNeverRefused) {
  start();
  run("full_speed");
  EXPECT_EQ(server->counters().calls_refused, 0U);
}

// A client that opens calls with large replies and never opens its window holds a bounded amount, and stops nobody.
TEST_F(Grpc, AClientWithoutWindowHoldsABoundedAmount) {
  options.send_backlog_bytes_max = 1'000'000;
  start();
  RawSocket socket = RawSocket::connected_to(server->address());
  // SETTINGS_INITIAL_WINDOW_SIZE 0.
  socket.send(as_bytes(std::string(h2::preface) + h2::frame(4, 0, 0, std::string("\0\4\0\0\0\0", 6))));
  std::string message(100'005, 'x');
  message.replace(0, 5, std::string("\0\0\1\x86\xa0", 5));
  for (std::uint32_t i = 0; i < 100; ++i) {
    std::string call = open_call(i, "/test.Raw/Echo");
    for (std::size_t at = 0; at < message.size(); at += 16'000) {
      const std::string part = message.substr(at, 16'000);
      call += h2::frame(0, at + 16'000 >= message.size() ? 1 : 0, 2 * i + 1, part);
    }
    socket.send(as_bytes(call));
  }
  run("steady");
  // Ten replies of 100 KB pass the mark; later calls wait until the client takes something.
  EXPECT_EQ(server->counters().calls_refused, 0U);
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes >= 1'000'000; }));
  EXPECT_LE(server->counters().receive_bytes, 4'000'000U + 100 * 140'000U);
  socket.close();
}

TEST_F(Grpc, RequestsThatAreNotGrpc) {
  start();
  RawSocket socket = RawSocket::connected_to(server->address());
  const std::string get = h2::hpack({{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "t"}});
  socket.send(as_bytes(h2::hello() + h2::frame(1, 5, 1, get)));
  EXPECT_NE(socket.receive_text("405").find("405"), std::string::npos);
}

TEST_F(Grpc, OptionsAreChecked) {
  EXPECT_THROW(grpc({.message_bytes_max = 0}), std::invalid_argument);
  EXPECT_THROW(grpc({.calls_max = 70'000}), std::invalid_argument);
  EXPECT_THROW(grpc({.stream_window_bytes = 1}), std::invalid_argument);
  EXPECT_THROW(grpc({.write_timeout = Duration::zero()}), std::invalid_argument);
}

}  // namespace
}  // namespace hawser
