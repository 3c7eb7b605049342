// The bound of the memory of requests in progress.
#include "block/memory_in_flight.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/hawser.h"

namespace hawser::block {
namespace {

constexpr std::size_t piece = 4096;

// Appends `number` when the memory is there, and keeps it in `held`.
Task<void> acquire(MemoryInFlight& memory, Loop& loop, std::size_t bytes, int number, std::vector<int>& order,
                   std::vector<Buffer>& held, std::stop_token token = {}) {
  Result<Buffer> buffer = co_await memory.acquire(loop, bytes, std::move(token));
  order.push_back(buffer ? number : -number);
  if (buffer) held.push_back(std::move(*buffer));
}

TEST(BlockMemoryInFlight, CallsBeyondTheBoundWaitInOrder) {
  Loop loop;
  loop.run([](Loop& on) -> Task<void> {
    MemoryInFlight memory(4 * piece);
    std::vector<int> order;
    std::vector<Buffer> held;
    Scope scope;
    scope.spawn(acquire(memory, on, 3 * piece, 1, order, held));
    scope.spawn(acquire(memory, on, 2 * piece, 2, order, held));
    scope.spawn(acquire(memory, on, piece, 3, order, held));  // It would fit, and waits behind the second one.
    co_await on.sleep(Duration::zero());
    EXPECT_EQ(order, std::vector<int>{1});
    EXPECT_EQ(memory.used(), 3 * piece);
    EXPECT_FALSE(memory.try_acquire(piece)) << "others wait";
    std::vector<Buffer> first = std::exchange(held, {});
    first.clear();
    co_await scope.join();
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(memory.used(), 3 * piece);
    EXPECT_TRUE(memory.try_acquire(piece));
    EXPECT_FALSE(memory.try_acquire(2 * piece));
    held.clear();
    EXPECT_EQ(memory.used(), 0U);
  }(loop));
}

TEST(BlockMemoryInFlight, AnAddressFindsItsMemory) {
  MemoryInFlight memory(8 * piece);
  std::optional<Buffer> first = memory.try_acquire_listed(2 * piece);
  const std::optional<Buffer> second = memory.try_acquire_listed(piece);
  const std::optional<Buffer> other = memory.try_acquire(piece);
  ASSERT_TRUE(first && second && other);
  const std::byte* const begin = first->bytes().data();
  EXPECT_EQ(memory.owner_of(other->bytes().data()), nullptr);
  EXPECT_NE(memory.owner_of(second->bytes().data() + piece - 1), nullptr);
  std::shared_ptr<const void> kept = memory.owner_of(begin + 2 * piece - 1);
  EXPECT_EQ(kept, memory.owner_of(begin));
  first.reset();
  EXPECT_EQ(memory.used(), 4 * piece) << "the memory is kept";
  kept.reset();
  EXPECT_EQ(memory.used(), 2 * piece);
  EXPECT_EQ(memory.owner_of(begin), nullptr);
}

TEST(BlockMemoryInFlight, ACallThatEndsLeavesItsPlace) {
  Loop loop;
  loop.run([](Loop& on) -> Task<void> {
    MemoryInFlight memory(2 * piece);
    std::vector<int> order;
    std::vector<Buffer> held;
    std::stop_source stop;
    Scope scope;
    scope.spawn(acquire(memory, on, piece, 1, order, held));
    scope.spawn(acquire(memory, on, 2 * piece, 2, order, held, stop.get_token()));
    scope.spawn(acquire(memory, on, piece, 3, order, held));
    co_await on.sleep(Duration::zero());
    stop.request_stop();
    co_await scope.join();
    EXPECT_EQ(order, (std::vector<int>{1, -2, 3}));
    EXPECT_EQ(memory.used(), 2 * piece);
  }(loop));
}

TEST(BlockMemoryInFlight, PooledMemoryCounts) {
  MemoryInFlight memory(4 * piece);
  std::optional<Buffer> pooled = memory.try_acquire_pooled(3 * piece);
  ASSERT_TRUE(pooled);
  EXPECT_EQ(pooled->size(), 3 * piece);
  EXPECT_EQ(memory.used(), 3 * piece);
  EXPECT_FALSE(memory.try_acquire_pooled(2 * piece));
  EXPECT_EQ(memory.used(), 3 * piece);
  pooled.reset();
  EXPECT_EQ(memory.used(), 0U);
}

TEST(BlockMemoryInFlight, AnotherThreadReleasesMemory) {
  Loop loop;
  loop.run([](Loop& on) -> Task<void> {
    MemoryInFlight memory(piece);
    for (int i = 0; i < 100; ++i) {
      Result<Buffer> first = co_await memory.acquire(on, piece, {});
      EXPECT_TRUE(first);
      std::jthread other([kept = std::move(*first)]() mutable { kept = Buffer(); });
      const Result<Buffer> second = co_await memory.acquire(on, piece, {});
      EXPECT_TRUE(second);
    }
    EXPECT_EQ(memory.used(), 0U);
  }(loop));
}

}  // namespace
}  // namespace hawser::block
