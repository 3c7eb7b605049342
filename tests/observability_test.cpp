#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "exec/sim_poller.h"
#include "rpc/session/limited_log.h"
#include "tests/testing.h"
#include "transport/network_access.h"
#include "transport/sim/sim_network.h"

// The lines that a server, a client and a loop log, with the default options.
namespace hawser::observability {

using namespace testing_tools;

int throws_at_once() { throw std::runtime_error("the password is 1234"); }
Task<int> throws_later(Context& context) {
  co_await context.loop().sleep(1ms);
  throw std::runtime_error("the password is 1234");
}
int blocks(std::uint32_t ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return 0;
}

// The lines of a log, which several threads may write.
class Lines {
 public:
  LogSink sink() {
    return [this](LogLevel level, std::string_view, std::string_view text) {
      const std::lock_guard guard(mutex_);
      lines_.push_back({level, std::string(text)});
    };
  }
  // The number of lines of this level that contain `part`.
  std::size_t count(LogLevel level, std::string_view part) const {
    const std::lock_guard guard(mutex_);
    return static_cast<std::size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const Line& line) {
      return line.level == level && line.text.find(part) != std::string::npos;
    }));
  }
  std::string all() const {
    const std::lock_guard guard(mutex_);
    std::string text;
    for (const Line& line : lines_) text += std::string(to_string(line.level)) + ": " + line.text + "\n";
    return text;
  }

 private:
  struct Line {
    LogLevel level;
    std::string text;
  };
  mutable std::mutex mutex_;
  std::vector<Line> lines_;
};

class Observability : public ::testing::Test {
 protected:
  template <class Body>
  void run(Body body) {
    loop.run(body());
  }
  ServerOptions at_server() {
    ServerOptions options;
    options.listen = "server:0";
    return options;
  }

  Lines lines;
  Loop loop{std::make_unique<exec::SimPoller>(), LoopOptions{.log = lines.sink()}};
  const std::shared_ptr<transport::SimNetwork> network = std::make_shared<transport::SimNetwork>(3);
};

TEST_F(Observability, ExceptionsAreLoggedWithTheirMethodAndKeptFromTheCaller) {
  for (const bool sends_texts : {false, true}) {
    const std::size_t before = lines.count(LogLevel::error, "");
    ServerOptions options = at_server();
    options.exception_texts = sends_texts;
    Server server(loop, over(network, options));
    server.register_handler<throws_at_once, throws_later>();
    run([&]() -> Task<void> {
      REQUIRE_OK(server.start());
      Client client(loop, over(network, ClientOptions()));
      auto connected = co_await client.connect(server.address());
      REQUIRE_OK(connected);
      auto at_once = co_await client.call<throws_at_once>();
      auto later = co_await client.call<throws_later>();
      for (const Result<int>* const result : {&at_once, &later}) {
        if (sends_texts) {
          EXPECT_ERROR(*result, internal, "the handler threw an exception: the password is 1234");
        } else {
          EXPECT_ERROR(*result, internal, "the handler threw an exception, whose text is in the server's log");
          EXPECT_EQ(error_of(*result).find("1234"), std::string::npos);
        }
      }
      client.close();
      co_await server.shut_down(1s);
    });
    EXPECT_EQ(lines.count(LogLevel::error, "") - before, 2U) << lines.all();
  }
  EXPECT_EQ(lines.count(LogLevel::error, "throws_at_once from "), 2U) << lines.all();
  EXPECT_EQ(lines.count(LogLevel::error, ": the handler threw an exception: the password is 1234"), 4U) << lines.all();
}

TEST_F(Observability, ConnectionsAndStopsAreLogged) {
  Server server(loop, over(network, at_server()));
  run([&]() -> Task<void> {
    REQUIRE_OK(server.start());
    Client client(loop, over(network, ClientOptions()));
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    EXPECT_EQ(lines.count(LogLevel::info, "connected to " + server.address() + " over sim"), 1U) << lines.all();
    auto opened = co_await eventually(loop, [&] { return server.counters().connections_open == 1; });
    EXPECT_TRUE(opened);
    EXPECT_EQ(lines.count(LogLevel::info, " opened over sim"), 1U) << lines.all();
    client.close();
    EXPECT_EQ(lines.count(LogLevel::debug, "connection to " + server.address() + " ended: the client was closed"), 1U)
        << lines.all();
    auto closed = co_await eventually(loop, [&] { return server.counters().connections_open == 0; });
    EXPECT_TRUE(closed);
    EXPECT_EQ(lines.count(LogLevel::info, " closed: "), 1U) << lines.all();
    auto again = co_await client.connect(server.address());
    REQUIRE_OK(again);
    co_await server.shut_down(1s);
    EXPECT_EQ(lines.count(LogLevel::info, "the server at " + server.address() + " stops: 0 calls in flight"), 1U)
        << lines.all();
    EXPECT_EQ(lines.count(LogLevel::info, "the server at " + server.address() + " has stopped"), 1U) << lines.all();
    auto lost = co_await eventually(loop, [&] { return !client.connected(); });
    EXPECT_TRUE(lost);
    EXPECT_EQ(lines.count(LogLevel::info, "connection to " + server.address() + " ended: "), 1U) << lines.all();
  });
  EXPECT_EQ(lines.count(LogLevel::warning, ""), 0U) << lines.all();
}

TEST_F(Observability, AServerWithThreadsLogsItsStop) {
  Lines of_server;
  ServerOptions options;
  options.threads = 2;
  options.loop.log = of_server.sink();
  Server server(options);
  ASSERT_TRUE(server.start());
  server.stop(1s);
  EXPECT_EQ(of_server.count(LogLevel::info, "stops: 0 calls in flight on 0 connections may end within 1000 ms"), 1U)
      << of_server.all();
  EXPECT_EQ(of_server.count(LogLevel::info, "has stopped"), 1U) << of_server.all();
}

TEST_F(Observability, LinesThatPeersCauseAreLimited) {
  rpc::LimitedLog log;
  run([&]() -> Task<void> {
    for (int i = 0; i < 1000; ++i) {
      log.write(loop, LogLevel::info, [] { return std::string("a line"); });
    }
    EXPECT_EQ(lines.count(LogLevel::info, "a line"), rpc::LimitedLog::lines_max);
    log.write(loop, LogLevel::error, [] { return std::string("of another level"); });
    EXPECT_EQ(lines.count(LogLevel::error, "of another level"), 1U);
    co_await loop.sleep(rpc::LimitedLog::interval);
    log.write(loop, LogLevel::info, [] { return std::string("a later line"); });
    EXPECT_EQ(lines.count(LogLevel::info, "a later line (without 980 similar lines before this)"), 1U) << lines.all();
  });
}

TEST(BlockedLoops, AreLoggedWithTheMethodThatWasCalled) {
  for (const Wait wait : {Wait::spin, Wait::event}) {
    Lines lines;
    ServerOptions options;
    options.loop = {.wait = wait, .blocked_max = 10ms, .log = lines.sink()};
    Server server(options);
    server.register_handler<blocks>();
    ASSERT_TRUE(server.start());
    const auto call = [](std::string address) -> Task<void> {
      Client client;
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      auto done = co_await client.call<blocks>(50U);
      EXPECT_OK(done);
    };
    // The loop writes at most one line a second, and a pause of the machine may have caused that of this second.
    EXPECT_TRUE(soon([&] {
      sync_wait(call(server.address()));
      return lines.count(LogLevel::warning,
                         "(LoopOptions::blocked_max is 10 ms): the last call that began was of "
                         "hawser::observability::blocks: ") != 0;
    })) << lines.all();
    server.stop(1s);
  }
}

TEST(BlockedLoops, AreLoggedWithoutACallAndOnceASecond) {
  Lines lines;
  Loop loop({.blocked_max = 5ms, .log = lines.sink()});
  loop.run([](Loop& own) -> Task<void> {
    for (int i = 0; i < 3; ++i) {
      std::this_thread::sleep_for(20ms);
      co_await own.sleep(1us);
    }
  }(loop));
  EXPECT_GE(lines.count(LogLevel::warning, "a coroutine, a timer or posted work has blocked it"), 1U) << lines.all();
  Lines none;
  Loop unlimited({.blocked_max = forever, .log = none.sink()});
  unlimited.run([]() -> Task<void> {
    std::this_thread::sleep_for(20ms);
    co_return;
  }());
  EXPECT_EQ(none.count(LogLevel::warning, ""), 0U) << none.all();
}

}  // namespace hawser::observability
