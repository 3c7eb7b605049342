#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/simulation/world.h"
#include "transport/network_access.h"

// Conditions under which a connection is regarded as dead.
namespace hawser::simulation {

std::string sized(std::string_view text, std::uint32_t bytes);
std::string sized(std::string_view text, std::uint32_t bytes) {
  return std::string(bytes, text.empty() ? '-' : text[0]);
}

namespace {

using std::chrono::milliseconds;

struct Pair {
  explicit Pair(transport::SimOptions options, Duration ping_interval)
      : loop(std::make_unique<exec::SimPoller>(), {.log = no_log()}),
        network(std::make_shared<transport::SimNetwork>(1, options)),
        server(loop, over(network, ServerOptions{.listen = "server:1", .ping_interval = ping_interval})),
        client(loop, over(network, ClientOptions{.call_timeout = forever, .ping_interval = ping_interval})) {
    server.register_handler<sized>();
  }

  // Connects, makes a call with these sizes, and returns the size of the reply.
  Task<Result<std::size_t>> call(std::size_t request_bytes, std::uint32_t reply_bytes) {
    if (Result<void> started = server.start(); !started) co_return std::unexpected(std::move(started.error()));
    Result<void> connected = co_await client.connect("server:1");
    if (!connected) co_return std::unexpected(std::move(connected.error()));
    const std::string request(request_bytes, 'x');
    Result<std::string> reply = co_await client.call<sized>(request, reply_bytes);
    if (!reply) co_return std::unexpected(std::move(reply.error()));
    co_return reply->size();
  }

  Loop loop;
  std::shared_ptr<transport::SimNetwork> network;
  Server server;
  Client client;
};

// A megabyte takes a second, ten times the silence after which a PING is sent.
constexpr transport::SimOptions slow_link{
    .bytes_per_second = 1'000'000, .buffer_bytes_min = 16 * 1024, .buffer_bytes_max = 16 * 1024};

// A client answers GOAWAY, so a server without calls stops long before the end of its grace.
TEST(Liveness, AnIdleClientLetsTheServerStopAtOnce) {
  Pair pair({}, std::chrono::seconds(15));
  pair.loop.run([](Pair& both) -> Task<void> {
    const Result<std::size_t> size = co_await both.call(10, 10);
    EXPECT_TRUE(size);
    const Time begin = both.loop.now();
    co_await both.server.shut_down(std::chrono::seconds(20));
    EXPECT_LT(both.loop.now() - begin, milliseconds(100));
    EXPECT_EQ(both.server.counters().connections_open, 0U);
  }(pair));
}

// The pause grows with consecutive failures. A success ends the series: after the connection is lost, the next attempt
// begins at once.
TEST(Liveness, ASuccessResetsThePoolsBackOff) {
  Loop loop(std::make_unique<exec::SimPoller>(), {.log = no_log()});
  const auto network = std::make_shared<transport::SimNetwork>(1, transport::SimOptions{});
  loop.run([](Loop& on, std::shared_ptr<transport::SimNetwork> sim) -> Task<void> {
    const auto pool = ClientPool::create(on, "server:1",
                                         over(sim, PoolOptions{.backoff_min = std::chrono::seconds(1),
                                                               .backoff_max = std::chrono::seconds(60),
                                                               .connect_attempts_max = 4}));
    const auto call = [&]() -> Task<Result<std::string>> {
      co_return co_await pool->call<sized>(std::string("y"), 3U);
    };
    const Result<std::string> failed = co_await call();
    EXPECT_FALSE(failed);
    for (int i = 0; i < 2; ++i) {
      auto server = std::make_unique<Server>(on, over(sim, ServerOptions{.listen = "server:1"}));
      server->register_handler<sized>();
      EXPECT_TRUE(server->start());
      const Time begin = on.now();
      const Result<std::string> reply = co_await call();
      EXPECT_EQ(reply, "yyy");
      // After four failures a pause is at least 4 s.
      if (i == 0) {
        EXPECT_GE(on.now() - begin, std::chrono::seconds(4));
      } else {
        EXPECT_LT(on.now() - begin, milliseconds(500)) << "the failures before the success still count";
      }
      co_await server->shut_down(std::chrono::seconds(1));
    }
  }(loop, network));
}

TEST(Liveness, ALongRequestIsASignOfLife) {
  Pair pair(slow_link, milliseconds(100));
  const Result<std::size_t> size = pair.loop.run(pair.call(1'000'000, 10));
  ASSERT_TRUE(size) << size.error().describe();
  EXPECT_EQ(*size, 10U);
}

TEST(Liveness, ALongReplyIsASignOfLife) {
  Pair pair(slow_link, milliseconds(100));
  const Result<std::size_t> size = pair.loop.run(pair.call(10, 1'000'000));
  ASSERT_TRUE(size) << size.error().describe();
  EXPECT_EQ(*size, 1'000'000U);
}

TEST(Liveness, ASilentPeerIsGivenUpAfterTwoIntervals) {
  Pair pair({}, milliseconds(100));
  Time silent;
  const Result<std::size_t> size = pair.loop.run([](Pair& of, Time& since) -> Task<Result<std::size_t>> {
    Result<std::size_t> ignored = co_await of.call(10, 10);
    of.network->vanish_all();
    since = of.loop.now();
    const std::string request = "x";
    Result<std::string> reply = co_await of.client.call<sized>(request, 10U);
    if (!reply) co_return std::unexpected(std::move(reply.error()));
    co_return *ignored;
  }(pair, silent));
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code, ErrorCode::outcome_unknown);
  EXPECT_GE(pair.loop.now() - silent, milliseconds(199));
  EXPECT_LE(pair.loop.now() - silent, milliseconds(215));
}

}  // namespace
}  // namespace hawser::simulation
