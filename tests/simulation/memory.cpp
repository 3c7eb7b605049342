#include "hawser/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/world.h"
#include "transport/network_access.h"

// Writes of a server's memory over a link that is so slow that anything can happen between two of their bytes.
namespace hawser::simulation {

// A handler. It has external linkage because methods are found by name.
int call_beside_bulk(int number) { return number; }
// Reads the caller's memory `times` times, one after the other.
Task<bool> read_of_caller(Context& context, RemoteRegion region, int times) {
  std::vector<std::byte> into(16 << 10);
  for (int i = 0; i < times; ++i) {
    const Result<void> read = co_await RemoteMemory(context).read(region, 0, into);
    if (!read) co_return false;
  }
  co_return true;
}
std::string large_reply(std::uint64_t bytes) { return std::string(bytes, 'r'); }
std::uint64_t large_request(const std::string& bytes) { return bytes.size(); }

namespace {

using std::chrono::milliseconds;

// 100,000 bytes take 100 ms.
constexpr transport::SimOptions slow_memory_link{
    .bytes_per_second = 1'000'000, .buffer_bytes_min = 16 * 1024, .buffer_bytes_max = 16 * 1024};
constexpr std::size_t written_bytes = 100'000;

struct SlowMemory {
  // Runs `meanwhile`, which begins with a write of 'w' over the 'U' of an exposed region.
  template <class Meanwhile>
  void run(Duration lease, Meanwhile meanwhile) {
    loop.run([](SlowMemory& self, Duration until, Meanwhile& body) -> Task<void> {
      EXPECT_TRUE(self.server.start());
      const Result<void> connected = co_await self.client.connect("server:1");
      EXPECT_TRUE(connected);
      RegisteredBuffer theirs = std::move(*RegisteredBuffer::allocate(self.server, written_bytes));
      RegisteredBuffer mine = std::move(*RegisteredBuffer::allocate(self.client, written_bytes));
      std::memset(theirs.memory().data(), 'U', theirs.size());
      std::memset(mine.memory().data(), 'w', mine.size());
      const ExposedRegion region =
          std::move(*theirs.expose(0, written_bytes, RegionAccess::read_write, {.lease = until}));
      std::optional<Result<void>> outcome;
      Scope scope;
      scope.spawn([](Client& by, RemoteRegion to, Bytes from, std::optional<Result<void>>& out) -> Task<void> {
        out = co_await RemoteMemory(by).write(to, 0, from);
      }(self.client, region.handle(), mine.memory().first(written_bytes), outcome));
      co_await body(self, theirs.memory());
      co_await scope.join();
      self.outcome = std::move(outcome);
    }(*this, lease, meanwhile));
  }
  Task<void> pause(Duration time) { co_await loop.sleep(time); }
  static std::size_t changed(Bytes memory) {
    return static_cast<std::size_t>(std::count(memory.begin(), memory.end(), std::byte{'w'}));
  }

  Loop loop{std::make_unique<exec::SimPoller>(), {.log = no_log()}};
  std::shared_ptr<transport::SimNetwork> network = std::make_shared<transport::SimNetwork>(1, slow_memory_link);
  Server server{loop, over(network, ServerOptions{.listen = "server:1"})};
  Client client{loop, over(network, ClientOptions())};
  std::optional<Result<void>> outcome;
};

// A peer must not be able to stretch the lease by sending slowly.
TEST(SlowMemoryAccess, ALeaseEndsInTheMidstOfAFrame) {
  SlowMemory slow;
  std::size_t at_end = 0;
  std::size_t later = 0;
  slow.run(milliseconds(50), [&](SlowMemory& self, Bytes memory) -> Task<void> {
    co_await self.pause(milliseconds(50));
    at_end = SlowMemory::changed(memory);
    co_await self.pause(milliseconds(1000));
    later = SlowMemory::changed(memory);
  });
  EXPECT_GT(at_end, 10'000U);
  EXPECT_LT(at_end, 90'000U);
  EXPECT_EQ(later, at_end) << "the lease had ended";
  ASSERT_TRUE(slow.outcome);
  ASSERT_FALSE(*slow.outcome);
  EXPECT_EQ(slow.outcome->error().code, ErrorCode::stale_handle) << slow.outcome->error().text;
}

// A frame is written to the region while it arrives, so an incomplete frame counts as an access that has begun.
TEST(SlowMemoryAccess, AConnectionThatEndsInTheMidstOfAFrameHasAnUnknownOutcome) {
  SlowMemory slow;
  std::size_t written = 0;
  slow.run(forever, [&](SlowMemory& self, Bytes memory) -> Task<void> {
    co_await self.pause(milliseconds(50));
    self.client.close();
    co_await self.pause(milliseconds(1000));
    written = SlowMemory::changed(memory);
  });
  EXPECT_GT(written, 0U);
  EXPECT_LT(written, written_bytes);
  ASSERT_TRUE(slow.outcome);
  ASSERT_FALSE(*slow.outcome);
  EXPECT_EQ(slow.outcome->error().code, ErrorCode::outcome_unknown) << slow.outcome->error().text;
}

// 144 KiB take 1.5 ms.
constexpr transport::SimOptions memory_link{.delay_min = std::chrono::microseconds(10),
                                            .delay_max = std::chrono::microseconds(10),
                                            .bytes_per_second = 100'000'000,
                                            .buffer_bytes_min = 4 << 20,
                                            .buffer_bytes_max = 4 << 20};

// Returns the time of a bulk write. Meanwhile `calls` calls are made, one after the other; `slowest` is set to the
// longest time of these, apart from the first.
Task<Duration> write_beside_calls(Client& client, RemoteRegion region, Bytes from, int calls, Duration& slowest) {
  Loop& loop = *Loop::current();
  const Time begin = loop.now();
  Time end{};
  Scope scope;
  scope.spawn([](Client& by, RemoteRegion to, Bytes bytes, Time& ended) -> Task<void> {
    const Result<void> written = co_await RemoteMemory(by, TransferPriority::bulk).write(to, 0, bytes);
    EXPECT_TRUE(written);
    ended = Loop::current()->now();
  }(client, region, from, end));
  for (int i = 0; i < calls; ++i) {
    co_await loop.sleep(milliseconds(1));
    const Time began = loop.now();
    const Result<int> reply = co_await client.call<&call_beside_bulk>(i);
    EXPECT_TRUE(reply && *reply == i);
    if (i != 0) slowest = std::max(slowest, loop.now() - began);
  }
  EXPECT_EQ(end, Time{}) << "the calls have ended after the write";
  co_await scope.join();
  co_return end - begin;
}

// The session has no other traffic than the bulk write and the calls.
TEST(SlowMemoryAccess, CallsWaitForAShortWindowOfBulkAccesses) {
  constexpr std::size_t bytes = 32 << 20;
  Loop loop{std::make_unique<exec::SimPoller>(), {.log = no_log()}};
  std::shared_ptr<transport::SimNetwork> network = std::make_shared<transport::SimNetwork>(1, memory_link);
  Server server{loop, over(network, ServerOptions{.listen = "server:1"})};
  server.register_handler<&call_beside_bulk>();
  Client client{loop, over(network, ClientOptions())};
  Duration alone{};
  Duration beside{};
  Duration slowest{};
  loop.run([&]() -> Task<void> {
    EXPECT_TRUE(server.start());
    const Result<void> connected = co_await client.connect("server:1");
    EXPECT_TRUE(connected);
    RegisteredBuffer theirs = std::move(*RegisteredBuffer::allocate(server, bytes));
    RegisteredBuffer mine = std::move(*RegisteredBuffer::allocate(client, bytes));
    const ExposedRegion region = std::move(*theirs.expose(0, bytes, RegionAccess::read_write));
    Duration none{};
    alone = co_await write_beside_calls(client, region.handle(), mine.memory(), 0, none);
    beside = co_await write_beside_calls(client, region.handle(), mine.memory(), 50, slowest);
  }());
  EXPECT_GT(slowest, Duration::zero());
  EXPECT_LT(slowest, milliseconds(2)) << "a call waits for at most 144 KiB";
  EXPECT_LT(beside, alone * 5 / 4) << "the write keeps 0.8 of its rate";
}

// Small reads, one after the other.
Task<void> keep_reading(Client& client, RemoteRegion region, MutableBytes into, const bool& stop) {
  while (!stop) {
    const Result<void> read = co_await RemoteMemory(client).read(region, 0, into);
    if (!read) co_return;
  }
}

// So many small reads wait that they would use all frames that may be on their way.
TEST(SlowMemoryAccess, BulkAccessesGoOnBesideManySmallOnes) {
  constexpr std::size_t bytes = 1 << 20;
  constexpr std::size_t readers = 256;
  Loop loop{std::make_unique<exec::SimPoller>(), {.log = no_log()}};
  std::shared_ptr<transport::SimNetwork> network = std::make_shared<transport::SimNetwork>(1, memory_link);
  Server server{loop, over(network, ServerOptions{.listen = "server:1"})};
  Client client{loop, over(network, ClientOptions())};
  loop.run([&]() -> Task<void> {
    EXPECT_TRUE(server.start());
    const Result<void> connected = co_await client.connect("server:1");
    EXPECT_TRUE(connected);
    RegisteredBuffer theirs = std::move(*RegisteredBuffer::allocate(server, bytes));
    RegisteredBuffer mine = std::move(*RegisteredBuffer::allocate(client, bytes));
    std::vector<std::array<std::byte, 64>> small(readers);
    const ExposedRegion region = std::move(*theirs.expose(0, bytes, RegionAccess::read_write));
    bool stop = false;
    Scope scope;
    for (std::array<std::byte, 64>& into : small) scope.spawn(keep_reading(client, region.handle(), into, stop));
    co_await loop.sleep(milliseconds(10));
    const Result<void> written = co_await RemoteMemory(client, TransferPriority::bulk)
                                     .write(region.handle(), 0, mine.memory(), {.timeout = milliseconds(500)});
    EXPECT_TRUE(written) << written.error().text;
    stop = true;
    co_await scope.join();
  }());
}

Task<void> await_reply(Client& client, std::uint64_t bytes, std::size_t& ended) {
  const Result<std::string> reply = co_await client.call<&large_reply>(bytes);
  EXPECT_TRUE(reply && reply->size() == bytes) << (reply ? "" : reply.error().text);
  ++ended;
}

// Each look at the clock takes 600 us of virtual time, so that the turns of connections are short.
class SlowClock final : public exec::Poller {
 public:
  std::string_view name() const noexcept override { return "a slow clock"; }
  Time now() const noexcept override {
    looks_ += std::chrono::microseconds(600);
    return sim_.now() + looks_;
  }
  std::size_t wait(Duration timeout, Time& now) override {
    Time waited;
    const std::size_t found = sim_.wait(timeout, waited);
    now = sim_.now() + looks_;
    return found;
  }
  void wake() noexcept override {}
  void watch(int fd, exec::Watcher& watcher) override { sim_.watch(fd, watcher); }
  void unwatch(int, exec::Watcher&) noexcept override {}
  bool real_time() const noexcept override { return false; }

 private:
  exec::SimPoller sim_;
  mutable Duration looks_{};
};

struct LongBacklogs {
  static constexpr std::size_t backlog = 256 << 10;

  // Makes a request of 8 MiB, behind `small` calls and those with 4 MiB of replies. `beside` runs beside them.
  template <class Beside>
  void run(std::size_t small, Beside beside) {
    loop.run([](LongBacklogs& self, std::size_t of_few_bytes, Beside& other) -> Task<void> {
      EXPECT_TRUE(self.server.start());
      const Result<void> connected = co_await self.client.connect("server:1");
      EXPECT_TRUE(connected);
      RegisteredBuffer mine = std::move(*RegisteredBuffer::allocate(self.client, written_bytes));
      const ExposedRegion region = std::move(*mine.expose(0, written_bytes, RegionAccess::read));
      Scope scope;
      std::size_t ended = 0;
      scope.spawn(other(self.client, region.handle()));
      for (std::size_t i = 0; i < of_few_bytes; ++i) scope.spawn(await_reply(self.client, 100, ended));
      for (std::size_t i = 0; i < 8; ++i) scope.spawn(await_reply(self.client, 512 << 10, ended));
      const std::string request(8 << 20, 'q');
      const Result<std::uint64_t> counted = co_await self.client.call<&large_request>(request);
      EXPECT_TRUE(counted && *counted == request.size()) << (counted ? "" : counted.error().text);
      co_await scope.join();
      EXPECT_EQ(ended, of_few_bytes + 8);
    }(*this, small, beside));
  }

  LongBacklogs(std::unique_ptr<exec::Poller> poller, const transport::SimOptions& link)
      : loop(std::move(poller), {.log = no_log()}), network(std::make_shared<transport::SimNetwork>(1, link)) {
    server.register_handler<&read_of_caller, &large_reply, &large_request>();
  }

  Loop loop;
  std::shared_ptr<transport::SimNetwork> network;
  Server server{loop, over(network, ServerOptions{.listen = "server:1", .send_backlog_bytes_max = backlog})};
  Client client{loop, over(network, ClientOptions{.send_backlog_bytes_max = backlog})};
};

// A server whose replies are not taken reads no requests. So a client whose requests are not taken must go on to read,
// also if it serves accesses to its memory meanwhile,
TEST(LongBacklogOfAClient, DoesNotKeepItFromReadingWhileItServesMemory) {
  LongBacklogs both(std::make_unique<exec::SimPoller>(), slow_memory_link);
  both.run(0, [](Client& by, RemoteRegion of) -> Task<void> {
    const Result<bool> all = co_await by.call<&read_of_caller>(of, 20);
    EXPECT_TRUE(all && *all) << (all ? "an access failed" : all.error().text);
  });
}

// and if so many replies arrive at once that it continues in a later turn.
TEST(LongBacklogOfAClient, DoesNotKeepItFromReadingAfterATurn) {
  LongBacklogs both(std::make_unique<SlowClock>(),
                    {.bytes_per_second = 1'000'000'000, .buffer_bytes_min = 128 << 10, .buffer_bytes_max = 128 << 10});
  both.run(500, [](Client&, RemoteRegion) -> Task<void> { co_return; });
}

}  // namespace
}  // namespace hawser::simulation
