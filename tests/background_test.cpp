#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/any_stop.h"
#include "tests/testing.h"
#include "transport/network_access.h"
#include "transport/sim/sim_network.h"

// Background work of servers, and the token that is stopped when a stop begins.
namespace hawser::background {

using namespace testing_tools;

inline Task<void> ticks(Context& context, Writer<int> out) {
  const AnyStop stop(context.token(), context.stopping());
  for (int i = 0;; ++i) {
    auto written = co_await out.write(i);
    if (!written) co_return;
    auto slept = co_await context.loop().sleep(1s, stop.token());
    if (!slept) co_return;
  }
}
inline bool is_stopping(Context& context) { return context.stopping().stop_requested(); }

class BackgroundOfServers : public ::testing::Test {
 protected:
  template <class Body>
  void run(Body body) {
    loop.run(body());
  }
  std::unique_ptr<Server> make_server() {
    ServerOptions options;
    options.listen = "server:0";
    return std::make_unique<Server>(loop, over(network, std::move(options)));
  }
  LoopOptions logged() {
    LoopOptions options;
    options.log = [this](LogLevel level, std::string_view, std::string_view text) {
      if (level == LogLevel::error) errors += text;
    };
    return options;
  }

  std::string errors;
  Loop loop{std::make_unique<exec::SimPoller>(), logged()};
  const std::shared_ptr<transport::SimNetwork> network = std::make_shared<transport::SimNetwork>(11);
};

TEST_F(BackgroundOfServers, ALongStreamEndsItselfWhenAStopBegins) {
  auto server = make_server();
  server->register_handler<ticks, is_stopping>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    Client client(loop, over(network, ClientOptions()));
    auto connected = co_await client.connect(server->address());
    REQUIRE_OK(connected);
    auto stopping = co_await client.call<is_stopping>();
    EXPECT_EQ(stopping, false);
    auto call = co_await client.open<ticks>();
    REQUIRE_OK(call);
    auto reader = call->reader();
    auto first = co_await reader.next();
    REQUIRE_OK(first);
    EXPECT_EQ(*first, 0);
    const Time start = loop.now();
    auto ended = co_await [](Server& own) -> Task<bool> {
      co_await own.shut_down(1h);
      co_return true;
    }(*server);
    EXPECT_TRUE(ended);
    EXPECT_LT(loop.now() - start, 10s) << "the stop waited for its grace";
    std::optional<int> item = 0;
    while (item) {
      auto next = co_await reader.next();
      REQUIRE_OK(next);
      item = *next;
    }
    auto finished = co_await call->finish();
    EXPECT_OK(finished);
  });
}

TEST_F(BackgroundOfServers, WorkBeginsWithTheServerAndEndsWithinTheGrace) {
  auto server = make_server();
  std::string order;
  const auto work = [&](char name) {
    return [this, &order, name](Background background) -> Task<void> {
      order += name;
      auto slept = co_await loop.sleep(1h, background.stopping);
      EXPECT_FALSE(slept);
      EXPECT_FALSE(background.token.stop_requested());
      const Result<void> cleaned = co_await loop.sleep(2s, background.token);
      EXPECT_OK(cleaned);
      order += static_cast<char>(name - 'a' + 'A');
    };
  };
  EXPECT_OK(server->spawn(work('a')));
  run([&]() -> Task<void> {
    co_await loop.sleep(1ms);
    EXPECT_EQ(order, "") << "the server has not started";
    EXPECT_TRUE(server->loops().empty());
    REQUIRE_OK(server->start());
    EXPECT_EQ(server->loops(), std::vector<Loop*>{&loop});
    EXPECT_OK(server->spawn(work('b')));
    bool done = false;
    EXPECT_OK(server->spawn([](bool& flag) -> Task<void> {
      flag = true;
      co_return;
    }(done)));
    co_await loop.sleep(1ms);
    EXPECT_TRUE(done) << "a Task<void> is work, too";
    EXPECT_EQ(order, "ab");
    const Time start = loop.now();
    co_await server->shut_down(10s);
    EXPECT_EQ(order, "abAB");
    EXPECT_LT(loop.now() - start, 3s);
    const Result<void> late = server->spawn(work('c'));
    EXPECT_ERROR(late, unavailable, "after a stop");
  });
  EXPECT_EQ(order, "abAB");
}

TEST_F(BackgroundOfServers, WorkThatDoesNotEndIsCancelledAndThenDestroyed) {
  auto server = make_server();
  bool cancelled = false;
  const auto alive = std::make_shared<int>();
  EXPECT_OK(server->spawn([&, alive](const Background& background) -> Task<void> {
    auto slept = co_await loop.sleep(1h, background.token);
    cancelled = !slept;
    co_await loop.sleep(1h);
  }));
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    co_await loop.sleep(1ms);
    EXPECT_EQ(alive.use_count(), 2);
    const Time start = loop.now();
    co_await server->shut_down(5s);
    EXPECT_TRUE(cancelled);
    EXPECT_EQ(alive.use_count(), 1);
    EXPECT_GE(loop.now() - start, 5s);
    EXPECT_LE(loop.now() - start, 7s);
  });
}

TEST_F(BackgroundOfServers, WorkGoesWithAServerThatIsDestroyed) {
  auto server = make_server();
  const auto alive = std::make_shared<int>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    EXPECT_OK(server->spawn([this, alive]() -> Task<void> { co_await loop.sleep(1h); }));
    co_await loop.sleep(1ms);
    EXPECT_OK(server->spawn([alive]() -> Task<void> {
      ADD_FAILURE() << "its server has gone";
      co_return;
    }));
    server.reset();
    co_await loop.sleep(1ms);
    EXPECT_EQ(alive.use_count(), 1);
  });
}

TEST_F(BackgroundOfServers, AnExceptionIsLogged) {
  auto server = make_server();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    EXPECT_OK(server->spawn([]() -> Task<void> {
      throw std::runtime_error("nobody catches this");
      co_return;
    }));
    EXPECT_OK(server->spawn([]() -> Task<void> { throw std::runtime_error("nor this"); }));
    co_await loop.sleep(1ms);
    EXPECT_EQ(errors,
              "background work threw an exception: nobody catches thisbackground work threw an exception: nor this");
    co_await server->shut_down(0s);
  });
}

inline ServerOptions threaded(unsigned threads) {
  ServerOptions options;
  options.threads = threads;
  options.loop.log = no_log();
  return options;
}

TEST(BackgroundOnThreads, RunsOnAllLoopsOfTheServer) {
  Server server(threaded(3));
  ASSERT_TRUE(server.start());
  const std::vector<Loop*> loops = server.loops();
  EXPECT_EQ(loops.size(), 3U);
  std::mutex guard;
  std::multiset<Loop*> used;
  std::atomic<int> ended{0};
  for (int i = 0; i < 6; ++i) {
    EXPECT_OK(server.spawn([&](Background background) -> Task<void> {
      {
        const std::lock_guard lock(guard);
        used.insert(Loop::current());
      }
      // Work that is spawned on a loop of the server stays on that loop.
      EXPECT_OK(server.spawn([&, here = Loop::current()]() -> Task<void> {
        EXPECT_EQ(Loop::current(), here);
        ++ended;
        co_return;
      }));
      auto slept = co_await Loop::current()->sleep(1h, background.stopping);
      EXPECT_FALSE(slept);
      ++ended;
    }));
  }
  while (ended.load() < 6) std::this_thread::yield();
  server.stop(1h);
  EXPECT_EQ(ended.load(), 12);
  for (Loop* const loop : loops) EXPECT_EQ(used.count(loop), 2U);
  EXPECT_TRUE(server.loops().empty());
  EXPECT_FALSE(server.spawn([]() -> Task<void> { co_return; }));
}

// For the sanitizers: work is spawned while the server starts and stops.
TEST(BackgroundOnThreads, IsSpawnedAtAnyMoment) {
  for (int round = 0; round < 30; ++round) {
    Server server(threaded(2));
    std::atomic<bool> over{false};
    std::thread spawns([&] {
      while (!over.load()) {
        const Result<void> spawned = server.spawn([](Background background) -> Task<void> {
          auto slept = co_await Loop::current()->sleep(1ms, background.stopping);
          (void)slept;
        });
        if (!spawned) {
          EXPECT_ERROR(spawned, unavailable, "after a stop");
        }
        std::this_thread::yield();
      }
    });
    EXPECT_OK(server.start());
    std::this_thread::sleep_for(std::chrono::microseconds(100 * (round % 5)));
    server.stop(1h);
    over.store(true);
    spawns.join();
  }
}

TEST(AnyStopTest, StopsWithEitherOfTwo) {
  for (const int which : {0, 1}) {
    std::stop_source sources[2];
    const AnyStop stop(sources[0].get_token(), sources[1].get_token());
    EXPECT_FALSE(stop.token().stop_requested());
    sources[which].request_stop();
    EXPECT_TRUE(stop.token().stop_requested());
  }
  std::stop_source stopped;
  stopped.request_stop();
  EXPECT_TRUE(AnyStop({}, stopped.get_token()).token().stop_requested());
}

}  // namespace hawser::background
