#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/custom_protocol.h"
#include "tests/lifecycle/virtual_time.h"

// How long connections may be silent before their first byte, in virtual time.
namespace hawser::lifecycle {
namespace {

using namespace std::chrono_literals;

CustomProtocol lines(Duration idle_timeout) {
  return {.name = "lines",
          .match = CustomProtocol::begins_with("@"),
          .serve = [](ProtocolConnection& connection) -> Task<void> {
            const Result<std::string> line = co_await connection.receive_until("\n", 100);
            if (line) static_cast<void>(co_await connection.send(*line));
          },
          .idle_timeout = idle_timeout};
}

class Silence : public VirtualTime {
 protected:
  // Returns what a client receives that connects, sends `first`, waits, and then sends `rest`.
  Task<std::string> answer(std::string first, Duration wait, std::string rest) {
    auto client = co_await connect_raw(loop, *network, server->address());
    if (client == nullptr) co_return "no connection";
    client->send(as_bytes(first));
    co_await loop.sleep(wait);
    if (client->ended()) co_return "ended";
    client->send(as_bytes(rest));
    co_await loop.sleep(1s);
    co_return std::string(as_text(client->got()));
  }
  void start(Duration idle_timeout) {
    server = make_server({.handshake_timeout = 5s});
    server->enable(lines(idle_timeout));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }

  std::unique_ptr<Server> server;
};

// Clients of other protocols connect in advance.
TEST_F(Silence, LastsAsLongAsTheProtocolsIdleTimeout) {
  start(75s);
  run([&]() -> Task<void> {
    EXPECT_EQ(co_await answer("", 4900ms, "@in time\n"), "@in time");
    EXPECT_EQ(co_await answer("", 74s, "@later\n"), "@later");
    EXPECT_EQ(co_await answer("", 76s, "@too late\n"), "ended");
    EXPECT_EQ(server->counters().handshakes_failed, 1U);
  });
}

// The first byte ends it: the rest has the time for a handshake, whether the byte came early or late.
TEST_F(Silence, EndsWithTheFirstByte) {
  start(75s);
  run([&]() -> Task<void> {
    for (const char* const first : {"H", "HWS"}) {
      EXPECT_EQ(co_await answer(first, 6s, "@x\n"), "ended") << first;
    }
    auto client = co_await connect_raw(loop, *network, server->address());
    REQUIRE(client);
    co_await loop.sleep(60s);
    client->send(as_bytes(std::string_view("HW")));
    co_await loop.sleep(4s);
    EXPECT_FALSE(client->ended());
    co_await loop.sleep(2s);
    EXPECT_TRUE(client->ended());
  });
}

TEST_F(Silence, IsNotLongerForClientsOfTheLibrarysOwnProtocol) {
  start(1s);
  run([&]() -> Task<void> {
    EXPECT_EQ(co_await answer("", 4900ms, "@x\n"), "@x");
    EXPECT_EQ(co_await answer("", 5100ms, "@x\n"), "ended");
  });
}

// Silent connections are the first ones that give their places to others.
TEST_F(Silence, EndsWhenPlacesAreNeeded) {
  server = make_server({.handshakes_max = 4});
  server->enable(lines(75s));
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    auto silent = co_await connect_silent(loop, *network, server->address(), 4);
    REQUIRE(silent.size() == 4);
    co_await loop.sleep(30s);
    EXPECT_FALSE(silent.front()->ended());
    EXPECT_EQ(co_await answer("", 0s, "@served\n"), "@served");
    EXPECT_TRUE(silent.front()->ended());
    EXPECT_FALSE(silent.back()->ended());
  });
}

}  // namespace
}  // namespace hawser::lifecycle
