// Calls that threads of the offload pool answer: calls whose caller has gone, and the order in which connections get a
// thread.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "tests/testing.h"

namespace hawser::offload_test {

using namespace testing_tools;

// Handlers that wait for the gate. Each records its beginning.
struct Jobs {
  int work(int number) {
    {
      const std::lock_guard lock(mutex);
      begun.push_back(number);
    }
    gate.wait();
    return number;
  }
  bool watch(Context& context, int number) {
    work(number);
    return context.token().stop_requested();
  }
  std::vector<int> order() {
    const std::lock_guard lock(mutex);
    return begun;
  }
  std::size_t count() { return order().size(); }

  std::promise<void> opened;
  const std::shared_future<void> gate = opened.get_future().share();
  std::mutex mutex;
  std::vector<int> begun;
};

class OffloadedCalls : public ::testing::Test {
 public:
  // Starts a server with one thread for offloaded work.
  void start(std::size_t queue_max = 1024) {
    LoopOptions options;
    options.offload_threads_max = 1;
    options.offload_queue_max = queue_max;
    own_loop = std::make_unique<Loop>(options);
    server = std::make_unique<Server>(*own_loop, ServerOptions{.listen = "127.0.0.1:0"});
    server->register_handler<&Jobs::work, &Jobs::watch>(&jobs, {.offload = true});
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  Task<std::unique_ptr<Client>> connect() {
    auto client = std::make_unique<Client>(ClientOptions{.transports = {.required = "stream"}});
    auto connected = co_await client->connect(server->address());
    EXPECT_OK(connected);
    co_return client;
  }
  Task<std::vector<PendingCall<&Jobs::work>>> send(Client& client, int first, int count, CallOptions options = {}) {
    std::vector<PendingCall<&Jobs::work>> pending;
    for (int i = 0; i < count; ++i) {
      auto sent = co_await client.send_request<&Jobs::work>(options, first + i);
      EXPECT_OK(sent);
      if (sent) pending.push_back(std::move(*sent));
    }
    co_return pending;
  }
  Task<void> wait_in_flight(std::size_t count) {
    auto reached = co_await eventually(loop(), [&] { return server->counters().calls_in_flight == count; });
    EXPECT_TRUE(reached) << server->counters().calls_in_flight;
  }

  Loop& loop() { return *own_loop; }

  Jobs jobs;
  std::unique_ptr<Loop> own_loop;
  std::unique_ptr<Server> server;
};

TEST_F(OffloadedCalls, OfACallerThatHasGoneDoNotRun) {
  start();
  loop().run([](OffloadedCalls& self) -> Task<void> {
    auto client = co_await self.connect();
    auto other = co_await self.connect();
    auto running = co_await self.send(*client, 1, 1);
    auto started = co_await eventually(self.loop(), [&] { return self.jobs.count() == 1; });
    EXPECT_TRUE(started);
    // Calls that are cancelled, past their deadline, or of a connection that has ended leave the queue at once.
    {
      auto dropped = co_await self.send(*client, 100, 5);
      co_await self.wait_in_flight(6);
    }
    co_await self.wait_in_flight(1);
    auto late = co_await self.send(*client, 200, 5, {.timeout = 1ms});
    for (auto& one : late) {
      auto reply = co_await std::move(one);
      EXPECT_ERROR(reply, deadline_exceeded, "");
    }
    co_await self.wait_in_flight(1);
    auto lost = co_await self.send(*other, 300, 5);
    co_await self.wait_in_flight(6);
    other->close();
    co_await self.wait_in_flight(1);
    auto gone = co_await eventually(self.loop(), [&] { return self.server->counters().connections_open == 1; });
    EXPECT_TRUE(gone);

    self.jobs.opened.set_value();
    auto reply = co_await std::move(running.front());
    EXPECT_EQ(reply, 1);
    auto after = co_await client->call<&Jobs::work>(2);
    EXPECT_EQ(after, 2);
    EXPECT_EQ(self.jobs.order(), (std::vector<int>{1, 2}));
    co_await self.server->shut_down(patience);
    EXPECT_EQ(self.server->counters().calls_in_flight, 0U);
  }(*this));
}

TEST_F(OffloadedCalls, OfSeveralConnectionsTakeTurns) {
  start();
  loop().run([](OffloadedCalls& self) -> Task<void> {
    auto client = co_await self.connect();
    auto other = co_await self.connect();
    auto running = co_await self.send(*client, 1, 1);
    auto started = co_await eventually(self.loop(), [&] { return self.jobs.count() == 1; });
    EXPECT_TRUE(started);
    auto many = co_await self.send(*client, 100, 4);
    co_await self.wait_in_flight(5);
    auto few = co_await self.send(*other, 200, 2);
    co_await self.wait_in_flight(7);
    self.jobs.opened.set_value();
    for (auto& one : many) {
      auto reply = co_await std::move(one);
      EXPECT_OK(reply);
    }
    EXPECT_EQ(self.jobs.order(), (std::vector<int>{1, 100, 200, 101, 201, 102, 103}));
  }(*this));
}

// A client of bRPC keeps as many blocking calls in flight as it likes, and its server refuses none.
TEST_F(OffloadedCalls, OfABusyConnectionWaitByDefault) {
  start(LoopOptions().offload_queue_max);
  EXPECT_GE(LoopOptions().offload_queue_max / 2, ServerOptions().calls_per_connection_max);
  loop().run([](OffloadedCalls& self) -> Task<void> {
    constexpr int calls = 2000;
    auto client = co_await self.connect();
    auto other = co_await self.connect();
    auto many = co_await self.send(*client, 1, calls);
    auto more = co_await self.send(*other, calls, calls);
    co_await self.wait_in_flight(2 * calls);
    self.jobs.opened.set_value();
    for (auto* const all : {&many, &more}) {
      for (auto& one : *all) {
        auto reply = co_await std::move(one);
        EXPECT_OK(reply);
      }
    }
  }(*this));
}

TEST_F(OffloadedCalls, OfOneConnectionLeavePlacesForOthers) {
  start(8);
  loop().run([](OffloadedCalls& self) -> Task<void> {
    auto client = co_await self.connect();
    auto other = co_await self.connect();
    auto running = co_await self.send(*client, 1, 1);
    auto started = co_await eventually(self.loop(), [&] { return self.jobs.count() == 1; });
    EXPECT_TRUE(started);
    auto many = co_await self.send(*client, 100, 10);
    // Half of the queue's places; further calls are refused while these wait.
    for (int i = 4; i < 10; ++i) {
      auto refused = co_await std::move(many[static_cast<std::size_t>(i)]);
      EXPECT_ERROR(refused, overloaded, "half of the free places of offload_queue_max");
    }
    auto few = co_await self.send(*other, 200, 2);
    co_await self.wait_in_flight(7);
    self.jobs.opened.set_value();
    for (auto& one : few) {
      auto reply = co_await std::move(one);
      EXPECT_OK(reply);
    }
    for (int i = 0; i < 4; ++i) {
      auto reply = co_await std::move(many[static_cast<std::size_t>(i)]);
      EXPECT_OK(reply);
    }
  }(*this));
}

// A server may be destroyed while work waits: waiting work is dropped, running work is awaited.
TEST_F(OffloadedCalls, ThatWaitDoNotDelayTheEndOfTheServer) {
  start();
  loop().run([](OffloadedCalls& self) -> Task<void> {
    auto client = co_await self.connect();
    auto running = co_await self.send(*client, 1, 1);
    auto started = co_await eventually(self.loop(), [&] { return self.jobs.count() == 1; });
    EXPECT_TRUE(started);
    auto waiting = co_await self.send(*client, 100, 5);
    co_await self.wait_in_flight(6);
    self.jobs.opened.set_value();
    self.server.reset();
    for (const int number : self.jobs.order()) EXPECT_LT(number, 106);
  }(*this));
}

// For ThreadSanitizer: handlers request their token while callers cancel.
TEST_F(OffloadedCalls, AskForTheirTokenWhileTheyAreCancelled) {
  start();
  jobs.opened.set_value();
  loop().run([](OffloadedCalls& self) -> Task<void> {
    auto client = co_await self.connect();
    for (int i = 0; i < 200; ++i) {
      const CallOptions reply_options{.timeout = std::chrono::microseconds(20 * i)};
      auto reply = co_await client->call<&Jobs::watch>(reply_options, i);
      if (!reply) {
        EXPECT_ERROR(reply, deadline_exceeded, "");
      }
    }
    co_await self.wait_in_flight(0);
  }(*this));
}

}  // namespace hawser::offload_test
