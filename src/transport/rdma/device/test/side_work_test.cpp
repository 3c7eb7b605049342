#include "transport/rdma/device/side_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "heap/external_block.h"
#include "transport/conformance/loop_stream_testing.h"
#include "transport/rdma/device/test/slow_device_testing.h"
#include "transport/rdma/rdma_transport.h"

// Operations in which the kernel may block for a second do not run on the loop's thread.
namespace hawser::transport::rdma {
namespace {

using namespace std::chrono_literals;

void run_until(Loop& loop, const std::function<bool()>& condition) {
  loop.run([](Loop& on, const std::function<bool()>& is_so) -> Task<void> {
    const auto limit = std::chrono::steady_clock::now() + 30s;
    while (!is_so() && std::chrono::steady_clock::now() < limit) {
      co_await on.sleep(1ms);
    }
    EXPECT_TRUE(is_so());
  }(loop, condition));
}

TEST(SideWork, IsDoneByAnotherThreadWhileTheLoopGoesOn) {
  Loop loop({.log = no_log()});
  SideWork side(loop, std::make_shared<exec::OffloadPool>(1U, std::size_t{4}, nullptr));
  std::atomic<int> ticks = 0;
  std::thread::id worker;
  bool after = false;
  ASSERT_TRUE(side.run([&]() -> SideWork::After {
    worker = std::this_thread::get_id();
    while (ticks < 10) std::this_thread::yield();
    return [&] { after = true; };
  }));
  run_until(loop, [&] {
    ++ticks;
    return after;
  });
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST(SideWork, WhatWaitsIsBounded) {
  Loop loop({.log = no_log()});
  SideWork side(loop, std::make_shared<exec::OffloadPool>(1U, std::size_t{4}, nullptr));
  std::atomic<bool> go = false;
  int done = 0;
  int taken = 0;
  const auto work = [&]() -> SideWork::After {
    while (!go) std::this_thread::yield();
    return [&] { ++done; };
  };
  while (side.run(work)) ++taken;
  // Half of the queue's places, and the work that runs.
  EXPECT_LE(taken, 3);
  EXPECT_GE(taken, 2);
  go = true;
  run_until(loop, [&] { return done == taken; });
  EXPECT_TRUE(side.run(work));
  run_until(loop, [&] { return done == taken + 1; });
}

TEST(SideWork, ClosingWaitsForWhatHasBegun) {
  Loop loop({.log = no_log()});
  SideWork side(loop, std::make_shared<exec::OffloadPool>(1U, std::size_t{4}, nullptr));
  std::atomic<bool> begun = false;
  std::atomic<bool> ended = false;
  const auto held = std::make_shared<int>();
  ASSERT_TRUE(side.run([&, held]() -> SideWork::After {
    begun = true;
    std::this_thread::sleep_for(20ms);
    ended = true;
    return [held] { ADD_FAILURE() << "called after it was closed"; };
  }));
  while (!begun) std::this_thread::yield();
  side.close();
  EXPECT_TRUE(ended);
  EXPECT_EQ(held.use_count(), 1);
  loop.run_posted();
}

TEST(SideWork, ClosingDropsWhatHasNotBegun) {
  Loop loop({.log = no_log()});
  const auto helper = std::make_shared<exec::OffloadPool>(1U, std::size_t{4}, nullptr);
  SideWork other(loop, helper);
  std::atomic<bool> closed = false;
  bool after = false;
  ASSERT_TRUE(other.run([&]() -> SideWork::After {
    while (!closed) std::this_thread::yield();
    return [] {};
  }));
  SideWork side(loop, helper);
  ASSERT_TRUE(side.run([]() -> SideWork::After {
    ADD_FAILURE() << "begun after it was closed";
    return [] {};
  }));
  side.close();
  // Another user of the same thread continues.
  ASSERT_TRUE(other.run([&]() -> SideWork::After { return [&] { after = true; }; }));
  closed = true;
  run_until(loop, [&] { return after; });
}

// Objects that the work has made may depend on others that are destroyed right after close(). The loop's mailbox must
// not keep them.
TEST(SideWork, ClosingDropsWhatTheLoopHasNotCalledYet) {
  Loop loop({.log = no_log()});
  const auto helper = std::make_shared<exec::OffloadPool>(1U, std::size_t{4}, nullptr);
  SideWork side(loop, helper);
  const auto held = std::make_shared<int>();
  ASSERT_TRUE(
      side.run([held]() -> SideWork::After { return [held] { ADD_FAILURE() << "called after it was closed"; }; }));
  // The same thread runs this later.
  std::atomic<bool> done = false;
  SideWork other(loop, helper);
  ASSERT_TRUE(other.run([&]() -> SideWork::After {
    done = true;
    return [] {};
  }));
  while (!done) std::this_thread::yield();
  EXPECT_EQ(held.use_count(), 2);
  side.close();
  EXPECT_EQ(held.use_count(), 1);
  loop.run_posted();
}

// Both sides of handshakes on one loop, over devices that report which thread calls them.
class SlowHandshake : public testing::Test {
 protected:
  static constexpr MessageLimits limits{1 << 20, 1 << 20};

  SlowHandshake() {
    client = attach(client_transport, 1);
    server = attach(server_transport, 2);
  }
  std::shared_ptr<TransportWorker> attach(std::shared_ptr<Transport>& transport, unsigned char number) {
    auto device = std::make_shared<SlowDevice>([this](std::string_view what) { called(what); }, number);
    RdmaOptions options;
    options.huge_pages = false;
    transport = make_rdma_transport(options, std::make_shared<SlowVerbs>(std::move(device)));
    return transport->attach(loop).value();
  }
  void called(std::string_view what) {
    std::unique_lock lock(mutex);
    calls.emplace_back(what);
    if (std::this_thread::get_id() == loop_thread) by_loop.emplace_back(what);
    if (what == thrown_on) {
      thrown_on.clear();
      throw std::bad_alloc();
    }
    if (what == block_on) {
      blocked = true;
      changed.wait(lock, [this] { return block_on.empty(); });
    }
  }
  std::size_t count(std::string_view what) {
    const std::lock_guard lock(mutex);
    return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), what));
  }
  bool is_blocked() {
    const std::lock_guard lock(mutex);
    return blocked;
  }
  void block(std::string what) {
    const std::lock_guard lock(mutex);
    block_on = std::move(what);
    blocked = false;
  }
  void throw_on(std::string what) {
    const std::lock_guard lock(mutex);
    thrown_on = std::move(what);
  }
  void unblock() {
    const std::lock_guard lock(mutex);
    block_on.clear();
    changed.notify_all();
  }
  void wait_for(PendingConnection& pending) {
    std::optional<Result<void>> outcome;
    pending.when_ready([&](const Result<void>& how) { outcome.emplace(how); });
    run_until(loop, [&] { return outcome.has_value(); });
    EXPECT_TRUE(*outcome);
  }

  Loop loop{{.log = no_log()}};
  const std::thread::id loop_thread = std::this_thread::get_id();
  std::mutex mutex;  // Guards the members below.
  std::condition_variable changed;
  std::vector<std::string> calls;
  std::vector<std::string> by_loop;
  std::string block_on;
  std::string thrown_on;  // Thrown once.
  bool blocked = false;

  std::shared_ptr<Transport> client_transport;
  std::shared_ptr<Transport> server_transport;
  std::shared_ptr<TransportWorker> client;
  std::shared_ptr<TransportWorker> server;
};

TEST_F(SlowHandshake, NothingThatBlocksIsDoneByTheLoop) {
  auto selected = server->select(client->offer(), limits);
  ASSERT_TRUE(selected);
  wait_for(**selected);
  auto accepted = client->accept((*selected)->parameters(), limits);
  ASSERT_TRUE(accepted);
  wait_for(**accepted);
  std::optional<Result<void>> outcome;
  (*selected)->connect((*accepted)->parameters(), [&](const Result<void>& how) { outcome.emplace(how); });
  EXPECT_FALSE(outcome);
  run_until(loop, [&] { return outcome.has_value(); });
  ASSERT_TRUE(*outcome);
  EXPECT_EQ(count("create"), 2U);
  EXPECT_EQ(count("connect"), 2U);
  EXPECT_EQ(count("register"), 2U) << "of each side's memory";
  auto [a, b] = LoopStream::make_pair();
  auto one = (*selected)->open(std::move(a));
  auto other = (*accepted)->open(std::move(b));
  one.reset();
  other.reset();
  run_until(loop, [&] { return count("destroy") == 2; });
  run_until(loop,
            [&] { return server_transport->memory()[0].connections + client_transport->memory()[0].connections == 0; });
  const std::lock_guard lock(mutex);
  EXPECT_TRUE(by_loop.empty()) << by_loop.front();
}

// While memory is exposed for writing, a system call sets the access of each queue pair. It runs after the calls of all
// others.
TEST_F(SlowHandshake, WhatThePeerMayDoIsNotToldByTheLoop) {
  struct Exposed final : ExternalBlock {
    Exposed() : ExternalBlock([](ExternalBlock&) noexcept {}), memory(4096) {}
    std::vector<std::byte> memory;
  } exposed;
  const auto registered = server_transport->register_memory(exposed.memory, exposed, false);
  ASSERT_TRUE(registered);
  const auto writable = (*registered)->expose(exposed.memory, true, true);
  ASSERT_TRUE(writable);
  by_loop.clear();
  auto selected = server->select(client->offer(), limits);
  ASSERT_TRUE(selected);
  wait_for(**selected);
  auto accepted = client->accept((*selected)->parameters(), limits);
  ASSERT_TRUE(accepted);
  wait_for(**accepted);
  std::optional<Result<void>> outcome;
  (*selected)->connect((*accepted)->parameters(), [&](const Result<void>& how) { outcome.emplace(how); });
  run_until(loop, [&] { return outcome.has_value(); });
  ASSERT_TRUE(*outcome);
  EXPECT_EQ(count("allow"), 1U);
  const std::lock_guard lock(mutex);
  EXPECT_TRUE(by_loop.empty()) << by_loop.front();
}

// If memory runs out in one of its steps, only that handshake fails.
TEST_F(SlowHandshake, MemoryThatRunsOutOnTheHelperFailsOneHandshake) {
  for (const std::string what : {"register", "create", "connect"}) {
    auto selected = server->select(client->offer(), limits);
    ASSERT_TRUE(selected);
    std::optional<Result<void>> outcome;
    const auto notified = [&](const Result<void>& how) { outcome.emplace(how); };
    if (what != "connect") throw_on(what);
    (*selected)->when_ready(notified);
    run_until(loop, [&] { return outcome.has_value(); });
    if (what == "connect") {
      ASSERT_TRUE(*outcome);
      auto accepted = client->accept((*selected)->parameters(), limits);
      ASSERT_TRUE(accepted);
      wait_for(**accepted);
      outcome.reset();
      throw_on(what);
      (*selected)->connect((*accepted)->parameters(), notified);
      run_until(loop, [&] { return outcome.has_value(); });
    }
    throw_on("");
    // If registering in advance fails, the memory is requested again when it is acquired.
    if (what != "register") {
      ASSERT_FALSE(*outcome) << what;
      EXPECT_EQ(outcome->error().code, ErrorCode::overloaded);
    }
    selected->reset();
    run_until(loop, [&] { return server_transport->memory()[0].connections == 0; });
    EXPECT_EQ(server_transport->memory()[0].used_bytes, 0U) << what;
  }
}

// The kernel looks for a peer that does not answer, and the client gives up meanwhile.
TEST_F(SlowHandshake, APendingConnectionThatGoesWhileItsQueuePairIsConnectedIsDestroyedAfterwards) {
  auto selected = server->select(client->offer(), limits);
  ASSERT_TRUE(selected);
  wait_for(**selected);
  auto accepted = client->accept((*selected)->parameters(), limits);
  ASSERT_TRUE(accepted);
  wait_for(**accepted);
  block("connect");
  (*selected)->connect((*accepted)->parameters(), [](const Result<void>&) { ADD_FAILURE() << "it has gone"; });
  run_until(loop, [&] { return is_blocked(); });
  selected->reset();
  std::size_t ticks = 0;
  run_until(loop, [&] { return ++ticks >= 50; });
  EXPECT_EQ(count("destroy"), 0U) << "it is being connected";
  EXPECT_EQ(server_transport->memory()[0].connections, 1U);
  unblock();
  run_until(loop, [&] { return count("destroy") == 1 && server_transport->memory()[0].connections == 0; });
  const std::lock_guard lock(mutex);
  EXPECT_TRUE(by_loop.empty()) << by_loop.front();
}

TEST_F(SlowHandshake, APendingConnectionThatGoesWhileItsQueuePairIsMadeLeavesNothing) {
  block("create");
  auto selected = server->select(client->offer(), limits);
  ASSERT_TRUE(selected);
  (*selected)->when_ready([](const Result<void>&) { ADD_FAILURE() << "it has gone"; });
  run_until(loop, [&] { return is_blocked(); });
  selected->reset();
  unblock();
  run_until(loop, [&] { return count("destroy") == 1; });
  EXPECT_EQ(server_transport->memory()[0].connections, 0U);
  EXPECT_EQ(server_transport->memory()[0].used_bytes, 0U);
  const std::lock_guard lock(mutex);
  EXPECT_TRUE(by_loop.empty()) << by_loop.front();
}

// The last user of a worker leaves while the worker's thread is busy. The queues must outlive that work.
TEST_F(SlowHandshake, AnEndWaitsForWhatIsAtHand) {
  block("create");
  auto selected = server->select(client->offer(), limits);
  ASSERT_TRUE(selected);
  (*selected)->when_ready([](const Result<void>&) { ADD_FAILURE() << "it has gone"; });
  run_until(loop, [&] { return is_blocked(); });
  std::thread later([this] {
    std::this_thread::sleep_for(20ms);
    unblock();
  });
  selected->reset();
  server.reset();
  later.join();
  EXPECT_EQ(count("create"), 1U);
  EXPECT_EQ(count("destroy"), 1U);
}

// A client may connect through an address that no device has. Repeated searches for such a device would occupy the
// loop.
TEST(OtherDevices, AreNotLookedForByEachHandshake) {
  struct Some final : Verbs {
    Result<std::vector<std::string>> devices() override {
      ++lists;
      return std::vector<std::string>{"slow0", "down0", "down1"};
    }
    Result<std::shared_ptr<Device>> open(const std::string& name) override {
      ++opens;
      if (name == "slow0") return std::make_shared<SlowDevice>([](std::string_view) {}, 1);
      if (!up) return fail(ErrorCode::unavailable, "down");
      return std::make_shared<SlowDevice>([](std::string_view) {}, name == "down0" ? 2 : 3);
    }
    int lists = 0;
    int opens = 0;
    bool up = false;
  };
  Loop loop({.log = no_log()});
  const auto verbs = std::make_shared<Some>();
  RdmaOptions options;
  options.huge_pages = false;
  const auto transport = make_rdma_transport(options, verbs);
  const auto worker = transport->attach(loop).value();
  TransportWorker* const first = &worker->select_device("10.0.0.1:1");
  const int before = verbs->opens;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(&worker->select_device("10.0.0.2:1"), first);
  // The loop's time does not advance meanwhile.
  EXPECT_EQ(verbs->opens - before, 2);
  // Later the device may exist.
  verbs->up = true;
  loop.run([](Loop& on) -> Task<void> { co_await on.sleep(1100ms); }(loop));
  EXPECT_NE(&worker->select_device("10.0.0.2:1"), first);
  EXPECT_EQ(verbs->opens - before, 4);
}

}  // namespace
}  // namespace hawser::transport::rdma
