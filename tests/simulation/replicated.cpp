#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "exec/timer_wheel.h"
#include "hawser/replicated_memory.h"
#include "tests/simulation/world.h"
#include "tests/testing.h"
#include "transport/network_access.h"

// Reads of replicated memory in virtual time. Each owner has a network of its own, so that its delay is known.
namespace hawser::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing_tools::is_error;

constexpr std::size_t replica_bytes = 64 << 10;
// Timers have this resolution. Multiples of it make the times exact.
constexpr Duration tick{1 << TimerWheel::tick_shift};
constexpr Duration one_way = 12 * tick;  // 98 us.
constexpr Duration round_trip = 2 * one_way;
constexpr Duration usual = 122 * tick;           // 1 ms. When the second owner is read.
constexpr Duration gray_one_way = 12000 * tick;  // 98 ms.

transport::SimOptions link_with_delay(Duration delay) { return {.delay_min = delay, .delay_max = delay}; }

// An owner of a copy, which has one letter in all its bytes.
struct ReplicaOwner {
  ReplicaOwner(Loop& on, char with) : loop(on), letter(with) {}
  Task<Result<void>> connect() { co_return co_await client.connect("owner:1"); }
  Task<void> start() {
    EXPECT_TRUE(server.start());
    const Result<void> connected = co_await connect();
    EXPECT_TRUE(connected);
    expose();
  }
  void expose() {
    memory = std::move(*RegisteredBuffer::allocate(server, replica_bytes));
    std::memset(memory.memory().data(), letter, replica_bytes);
    region = std::move(*memory.expose(0, replica_bytes, RegionAccess::read));
  }
  void set_delay(Duration delay) const { network->set_options(link_with_delay(delay)); }

  Loop& loop;
  char letter;
  std::shared_ptr<transport::SimNetwork> network = std::make_shared<transport::SimNetwork>(1, link_with_delay(one_way));
  Server server{loop, transport::over(network, ServerOptions{.listen = "owner:1"})};
  Client client{loop, transport::over(network, ClientOptions())};
  RegisteredBuffer memory;
  ExposedRegion region;
};

struct Replicas {
  template <class Test>
  void run(Test test) {
    loop.run([](Replicas& self, Test& body) -> Task<void> {
      for (const auto& owner : self.owners) co_await owner->start();
      co_await body(self);
    }(*this, test));
  }
  ReplicatedMemory replicated(const ReplicaOptions& options) const {
    std::vector<MemoryReplica> all;
    for (const auto& owner : owners) all.push_back({&owner->client, owner->region.handle()});
    return std::move(*ReplicatedMemory::create(all, options));
  }
  ReplicaOwner& operator[](std::size_t i) const { return *owners[i]; }

  Loop loop{std::make_unique<exec::SimPoller>(), {.log = no_log()}};
  std::vector<std::unique_ptr<ReplicaOwner>> owners = [this] {
    std::vector<std::unique_ptr<ReplicaOwner>> all;
    for (const char letter : {'a', 'b', 'c'}) all.push_back(std::make_unique<ReplicaOwner>(loop, letter));
    return all;
  }();
};

ReplicaOptions hedged_after(Duration delay, double budget = 1) {
  return {.hedging = {.attempts_max = 2, .delay = delay, .budget = budget}};
}

bool all_are(Bytes bytes, char letter) {
  return std::ranges::all_of(bytes, [&](std::byte one) { return one == static_cast<std::byte>(letter); });
}

Task<void> read_all(ReplicatedMemory& from, MutableBytes into, std::optional<Result<void>>& outcome) {
  outcome = co_await from.read_into(0, into);
}

TEST(ReplicatedMemoryAccess, ReadsComeFromTheFirstOwner) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicatedMemory replicated = self.replicated(hedged_after(usual));
    const Time began = self.loop.now();
    auto read = co_await replicated.read(100, 5000);
    REQUIRE_OK(read);
    EXPECT_EQ(self.loop.now() - began, round_trip);
    EXPECT_EQ(read->owner, 0U);
    EXPECT_EQ(read->bytes.size(), 5000U);
    EXPECT_TRUE(all_are(read->bytes.bytes(), 'a'));
    std::vector<std::byte> mine(replica_bytes);
    auto whole = co_await replicated.read_into(0, mine);
    REQUIRE_OK(whole);
    EXPECT_TRUE(all_are(mine, 'a'));
    auto nothing = co_await replicated.read(replica_bytes, 0);
    REQUIRE_OK(nothing);
    EXPECT_TRUE(nothing->bytes.empty());
    auto outside = co_await replicated.read(replica_bytes - 4, 5);
    EXPECT_TRUE(is_error(outside, ErrorCode::invalid_argument, "not within the region's"));
    EXPECT_EQ(replicated.owners()[0].reads, 3U);
    EXPECT_EQ(replicated.copies(), 0U);
  });
}

// The second owner is read after exactly the delay. What arrives later changes nothing that the caller sees.
TEST(ReplicatedMemoryAccess, ALateOwnerChangesNothingAfterTheRead) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicatedMemory replicated = self.replicated(hedged_after(3 * usual));
    self[0].set_delay(gray_one_way);
    std::vector<std::byte> mine(replica_bytes);
    const Time began = self.loop.now();
    auto read = co_await replicated.read_into(0, mine);
    REQUIRE_OK(read);
    EXPECT_EQ(self.loop.now() - began, 3 * usual + round_trip);
    EXPECT_TRUE(all_are(mine, 'b'));
    auto kept = co_await replicated.read(0, replica_bytes);
    REQUIRE_OK(kept);
    EXPECT_EQ(kept->owner, 1U);
    std::memset(mine.data(), 'x', mine.size());
    co_await self.loop.sleep(seconds(1));
    EXPECT_TRUE(all_are(mine, 'x'));
    EXPECT_TRUE(all_are(kept->bytes.bytes(), 'b'));
    // A zone is not used again while its bytes are kept.
    for (int i = 0; i < 5; ++i) {
      self[1].letter = 'B';
      std::memset(self[1].memory.memory().data(), 'B', replica_bytes);
      auto other = co_await replicated.read(0, replica_bytes);
      REQUIRE_OK(other);
    }
    EXPECT_TRUE(all_are(kept->bytes.bytes(), 'b'));
    EXPECT_GE(replicated.copies(), 2U);
  });
}

// 2,000 reads, during which the first owner turns gray after 500: a round trip takes 197 ms. The budget is a tenth.
// Without hedging, the same reads wait for the gray owner.
TEST(ReplicatedMemoryAccess, AGrayOwnerDoesNotDetermineThe99thPercentile) {
  for (const unsigned attempts : {1U, 2U}) {
    Replicas replicas;
    replicas.run([attempts](Replicas& self) -> Task<void> {
      ReplicatedMemory replicated = self.replicated(
          {.hedging = {.attempts_max = attempts, .percentile = 0.95, .delay_min = usual, .budget = 0.1}});
      std::vector<Duration> latencies;
      for (int i = 0; i < 2000; ++i) {
        if (i == 500) self[0].set_delay(gray_one_way);
        const Time began = self.loop.now();
        auto read = co_await replicated.read(0, 4000);
        REQUIRE_OK(read);
        latencies.push_back(self.loop.now() - began);
      }
      std::ranges::sort(latencies);
      const Duration p99 = latencies[latencies.size() * 99 / 100];
      const ReplicaState first = replicated.owners()[0];
      if (attempts == 1) {
        EXPECT_EQ(p99, 2 * gray_one_way);
        EXPECT_EQ(first.losses, 0U);
      } else {
        EXPECT_EQ(p99, round_trip);
        // The delay is at least delay_min. No read takes longer.
        EXPECT_EQ(latencies.back(), usual + round_trip);
        EXPECT_GE(first.losses, 3U);
        EXPECT_TRUE(first.suspended);
        EXPECT_LT(replicated.copies(), 20U);
      }
    });
  }
}

TEST(ReplicatedMemoryAccess, AnOwnerThatRecoversIsReadAgain) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicatedMemory replicated = self.replicated(hedged_after(usual));
    self[0].set_delay(gray_one_way);
    for (int i = 0; i < 3; ++i) {
      auto read = co_await replicated.read(0, 10);
      REQUIRE_OK(read);
      EXPECT_EQ(read->owner, 1U);
    }
    EXPECT_TRUE(replicated.owners()[0].suspended);
    self[0].set_delay(one_way);
    auto early = co_await replicated.read(0, 10);
    REQUIRE_OK(early);
    EXPECT_EQ(early->owner, 1U);
    co_await self.loop.sleep(milliseconds(500));
    auto later = co_await replicated.read(0, 10);
    REQUIRE_OK(later);
    EXPECT_EQ(later->owner, 0U);
    EXPECT_FALSE(replicated.owners()[0].suspended);
  });
}

// Copies beyond the budget are not made, and the read waits for its owner.
TEST(ReplicatedMemoryAccess, CopiesAreWithinTheBudget) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicaOptions options = hedged_after(usual, 0.01);
    options.suspend_min = options.suspend_max = std::chrono::hours(1);  // Trials after it are not within the budget.
    ReplicatedMemory replicated = self.replicated(options);
    for (const auto& owner : self.owners) owner->set_delay(4 * usual);
    for (int i = 0; i < 150; ++i) {
      auto read = co_await replicated.read(0, 10);
      REQUIRE_OK(read);
    }
    EXPECT_EQ(replicated.copies(), 1U);
    // The reads without a copy were slow at each owner.
    for (const ReplicaState& owner : replicated.owners()) EXPECT_TRUE(owner.suspended);
  });
}

// The next owner is read at once, whatever the budget, and each at most once.
TEST(ReplicatedMemoryAccess, ReadsGoToTheNextOwnerWhenOneFails) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicatedMemory replicated = self.replicated({.hedging = {.attempts_max = 1}});
    self[0].region.revoke();
    const Time began = self.loop.now();
    auto second = co_await replicated.read(0, 10);
    REQUIRE_OK(second);
    EXPECT_EQ(second->owner, 1U);
    EXPECT_EQ(self.loop.now() - began, 2 * round_trip);
    EXPECT_TRUE(replicated.owners()[0].suspended);
    self[1].client.close();
    auto third = co_await replicated.read(0, 10);
    REQUIRE_OK(third);
    EXPECT_EQ(third->owner, 2U);
    // The stale region is not read again.
    EXPECT_EQ(replicated.owners()[0].failures, 1U);
    self[2].client.close();
    auto none = co_await replicated.read(0, 10);
    EXPECT_TRUE(is_error(none, ErrorCode::unavailable, "none of the 3 owners delivered the bytes: [owner "));
    EXPECT_TRUE(is_error(none, ErrorCode::unavailable, "call set_region()"));
    // A restarted owner gives a new region, and the application connects again.
    self[0].expose();
    EXPECT_OK(replicated.set_region(0, self[0].region.handle()));
    auto first = co_await replicated.read(0, 10);
    REQUIRE_OK(first);
    EXPECT_EQ(first->owner, 0U);
    auto connected = co_await self[1].connect();
    EXPECT_OK(connected);
    self[0].client.close();
    auto again = co_await replicated.read(0, 10);
    REQUIRE_OK(again);
    EXPECT_EQ(again->owner, 1U);
  });
}

// A late failure concerns the region that was read.
TEST(ReplicatedMemoryAccess, ANewRegionIsNotStaleBecauseOfTheOldOne) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicatedMemory replicated = self.replicated({.hedging = {.attempts_max = 1}});
    std::vector<std::byte> mine(10);
    std::optional<Result<void>> outcome;
    self[0].region.revoke();
    Scope scope;
    scope.spawn(read_all(replicated, mine, outcome));
    self[0].expose();
    EXPECT_OK(replicated.set_region(0, self[0].region.handle()));
    co_await scope.join();
    EXPECT_EQ(replicated.owners()[0].failures, 1U);
    EXPECT_TRUE(all_are(mine, 'b'));
    auto next = co_await replicated.read(0, 10);
    REQUIRE_OK(next);
    EXPECT_EQ(next->owner, 0U);
  });
}

// A connection that ends during a read.
TEST(ReplicatedMemoryAccess, AConnectionThatEndsInTheMidstIsAFailure) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicatedMemory replicated = self.replicated({.hedging = {.attempts_max = 1}});
    self[0].set_delay(gray_one_way);
    std::vector<std::byte> mine(replica_bytes, std::byte{'x'});
    std::optional<Result<void>> outcome;
    Scope scope;
    scope.spawn(read_all(replicated, mine, outcome));
    co_await self.loop.sleep(gray_one_way / 2);
    self[0].network->reset_all();
    co_await scope.join();
    REQUIRE(outcome.has_value());
    REQUIRE_OK(*outcome);
    EXPECT_TRUE(all_are(mine, 'b'));
    EXPECT_EQ(replicated.owners()[0].failures, 1U);
  });
}

TEST(ReplicatedMemoryAccess, TheCallerRefusesOldBytes) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicatedMemory replicated = self.replicated({.hedging = {.attempts_max = 1}});
    const auto at_least = [](char letter) {
      return ReplicaReadOptions{.access = {},
                                .accept = [=](Bytes bytes) { return bytes[0] >= static_cast<std::byte>(letter); }};
    };
    std::vector<std::byte> mine(10, std::byte{'x'});
    auto newest = co_await replicated.read_into(0, mine, at_least('c'));
    REQUIRE_OK(newest);
    EXPECT_TRUE(all_are(mine, 'c'));
    std::memset(mine.data(), 'x', mine.size());
    auto none = co_await replicated.read_into(0, mine, at_least('d'));
    EXPECT_TRUE(is_error(none, ErrorCode::unavailable, "accept refused its bytes"));
    EXPECT_TRUE(all_are(mine, 'x'));
    bool caught = false;
    try {
      auto never = co_await replicated.read(0, 10, {.access = {}, .accept = [](Bytes) -> bool { throw 5; }});
      EXPECT_FALSE(never);
    } catch (int) {
      caught = true;
    }
    EXPECT_TRUE(caught);
    auto any = co_await replicated.read(0, 10);
    REQUIRE_OK(any);
    EXPECT_EQ(any->owner, 0U);
    for (const ReplicaState& owner : replicated.owners()) {
      EXPECT_GE(owner.refused, 1U);
      EXPECT_EQ(owner.failures, 0U);
      EXPECT_FALSE(owner.suspended);
    }
  });
}

TEST(ReplicatedMemoryAccess, TimeoutsTokensAndDestroyedTasksEndAllAccesses) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicatedMemory replicated = self.replicated(hedged_after(usual));
    for (const auto& owner : self.owners) owner->set_delay(gray_one_way);
    std::vector<std::byte> mine(replica_bytes, std::byte{'x'});
    const Time began = self.loop.now();
    auto late = co_await replicated.read_into(0, mine, {.access = {.timeout = 20 * usual}, .accept = {}});
    EXPECT_TRUE(is_error(late, ErrorCode::deadline_exceeded, "none of the 2 owners that were asked"));
    EXPECT_EQ(self.loop.now() - began, 20 * usual);
    EXPECT_EQ(replicated.owners()[0].losses + replicated.owners()[1].losses, 2U);
    EXPECT_EQ(replicated.owners()[0].failures, 0U);
    std::stop_source stop;
    const std::stop_token token = stop.get_token();
    std::optional<Result<void>> outcome;
    const auto read = [&]() -> Task<void> {
      outcome = co_await replicated.read_into(0, mine, {.access = {.token = &token}, .accept = {}});
    };
    {
      Scope scope;
      scope.spawn(read());
      co_await self.loop.sleep(milliseconds(5));
      stop.request_stop();
      co_await scope.join();
      REQUIRE(outcome.has_value());
      EXPECT_TRUE(is_error(*outcome, ErrorCode::cancelled, "was cancelled"));
    }
    {
      Scope abandoned;
      std::optional<Result<void>> never;
      abandoned.spawn(read_all(replicated, mine, never));
      co_await self.loop.sleep(milliseconds(5));
    }
    co_await self.loop.sleep(seconds(1));
    EXPECT_TRUE(all_are(mine, 'x'));
  });
}

// Whatever has happened until then, the owners and their landing memory are as before.
TEST(ReplicatedMemoryAccess, ATaskMayBeDestroyedAtAnyTime) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicaOptions options = hedged_after(5 * tick);
    options.landing_bytes_max = 4096;  // One zone for each owner.
    ReplicatedMemory replicated = self.replicated(options);
    std::vector<std::byte> mine(4096, std::byte{'x'});
    for (int step = 0; step < 32; ++step) {
      std::optional<Result<void>> outcome;
      {
        Scope abandoned;
        abandoned.spawn(read_all(replicated, mine, outcome));
        co_await self.loop.sleep(step * tick);
        if (step * tick != round_trip) {
          EXPECT_EQ(outcome.has_value(), step * tick > round_trip) << step;
        }
        if (!outcome) {
          EXPECT_TRUE(all_are(mine, 'x'));
        }
      }
      auto next = co_await replicated.read(0, 4096);
      REQUIRE_OK(next);
      EXPECT_EQ(next->owner, 0U) << step;
      std::memset(mine.data(), 'x', mine.size());
    }
    for (const ReplicaState& owner : replicated.owners()) EXPECT_EQ(owner.failures + owner.losses, 0U);
  });
}

// One of the reads that begin together tries the owner that was suspended. Its copy needs no budget.
TEST(ReplicatedMemoryAccess, OneReadAtATimeTriesASuspendedOwner) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicatedMemory replicated = self.replicated(hedged_after(usual, 0.5));
    self[0].set_delay(gray_one_way);
    for (int i = 0; i < 10; ++i) {
      auto read = co_await replicated.read(0, 10);
      REQUIRE_OK(read);
    }
    EXPECT_TRUE(replicated.owners()[0].suspended);
    const std::uint64_t losses = replicated.owners()[0].losses;
    const std::uint64_t copies = replicated.copies();
    co_await self.loop.sleep(milliseconds(200));
    EXPECT_FALSE(replicated.owners()[0].suspended);
    std::vector<std::vector<std::byte>> into(20, std::vector<std::byte>(10));
    std::vector<std::optional<Result<void>>> outcomes(into.size());
    const Time began = self.loop.now();
    Scope scope;
    for (std::size_t i = 0; i < into.size(); ++i) scope.spawn(read_all(replicated, into[i], outcomes[i]));
    co_await scope.join();
    EXPECT_EQ(self.loop.now() - began, usual + round_trip);
    for (const std::vector<std::byte>& bytes : into) EXPECT_TRUE(all_are(bytes, 'b'));
    EXPECT_EQ(replicated.owners()[0].losses, losses + 1);
    EXPECT_EQ(replicated.copies(), copies + 1);
    EXPECT_TRUE(replicated.owners()[0].suspended);
  });
}

TEST(ReplicatedMemoryAccess, LandingMemoryIsBoundedAndUsedAgain) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    ReplicaOptions options{.hedging = {.attempts_max = 1}, .landing_bytes_max = 16 << 10};
    ReplicatedMemory replicated = self.replicated(options);
    auto longer = co_await replicated.read(0, (16 << 10) + 1);
    EXPECT_TRUE(is_error(longer, ErrorCode::limit_exceeded, "exceeds ReplicaOptions::landing_bytes_max (16384)"));
    std::vector<ReplicaRead> kept;
    for (std::size_t i = 0; i < 12; ++i) {  // Four of each owner.
      auto read = co_await replicated.read(0, 4096);
      REQUIRE_OK(read);
      EXPECT_EQ(read->owner, i / 4);
      kept.push_back(std::move(*read));
    }
    auto full = co_await replicated.read(0, 4096);
    EXPECT_TRUE(is_error(full, ErrorCode::overloaded, "landing_bytes_max"));
    EXPECT_FALSE(replicated.owners()[0].suspended);
    kept.clear();
    auto whole = co_await replicated.read(0, 16 << 10);  // The smaller zones are released.
    REQUIRE_OK(whole);
    EXPECT_EQ(whole->owner, 0U);
  });
}

TEST(ReplicatedMemoryAccess, OwnersAreChecked) {
  Replicas replicas;
  replicas.run([](Replicas& self) -> Task<void> {
    EXPECT_TRUE(is_error(ReplicatedMemory::create({}), ErrorCode::invalid_argument, "1 to 64 owners"));
    std::vector<MemoryReplica> two{{nullptr, self[0].region.handle()}, {&self[1].client, self[1].region.handle()}};
    EXPECT_TRUE(is_error(ReplicatedMemory::create(two), ErrorCode::invalid_argument, "is null"));
    two[0].client = &self[0].client;
    two[0].region.bytes = 5;
    EXPECT_TRUE(is_error(ReplicatedMemory::create(two), ErrorCode::invalid_argument, "different sizes: 5 and 65536"));
    two[0].region.readable = false;
    EXPECT_TRUE(is_error(ReplicatedMemory::create(two), ErrorCode::invalid_argument, "not exposed to be read"));
    two[0].region = self[0].region.handle();
    ReplicatedMemory replicated = std::move(*ReplicatedMemory::create(two));
    EXPECT_TRUE(is_error(replicated.set_region(2, two[0].region), ErrorCode::invalid_argument, "none has index 2"));
    two[0].region.bytes = 5;
    EXPECT_TRUE(is_error(replicated.set_region(0, two[0].region), ErrorCode::invalid_argument, "has 5 bytes"));
    co_return;
  });
}

}  // namespace
}  // namespace hawser::simulation
