#include "transport/rdma/protocol/staging_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "transport/rdma/device/test/fake_device_testing.h"

namespace hawser::transport::rdma {
namespace {

struct StagingTest : testing::Test {
  static constexpr std::size_t range_bytes = 8192;

  // A pool whose memory can be used up by fill().
  const std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  const std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>(
      device, MemoryPoolOptions{.bytes_max = 256 * 1024, .arena_bytes = 64 * 1024, .huge_pages = false});
  const RegisteredMemory floor = pool->acquire(4096, MemoryPool::Use::connection).value_or(RegisteredMemory());
  std::vector<RegisteredMemory> filled;

  void fill() {
    while (const auto memory = pool->acquire(4096, MemoryPool::Use::connection)) filled.push_back(*memory);
  }
  void TearDown() override {
    for (const RegisteredMemory& memory : filled) pool->release(memory);
    EXPECT_EQ(pool->counters().used_bytes, 0U) << "memory did not return to the pool";
  }
};

TEST_F(StagingTest, RangesAreLimitedAndTheFloorIsKeptForLackOfMemory) {
  StagingMemory staging(pool, floor, range_bytes);
  std::set<std::byte*> ranges;
  std::size_t last = 0;
  for (std::size_t i = 0; i < StagingMemory::ranges_max; ++i) {
    last = staging.acquire();
    ASSERT_NE(last, 0U);
    EXPECT_GE(staging.memory(last).bytes, range_bytes);
    ranges.insert(staging.memory(last).data);
  }
  EXPECT_EQ(ranges.size(), StagingMemory::ranges_max) << "no two readers have one range";
  EXPECT_FALSE(ranges.contains(floor.data));
  EXPECT_EQ(staging.acquire(), 0U);
  std::byte* const released = staging.memory(last).data;
  staging.release(last);
  const std::size_t again = staging.acquire();
  ASSERT_NE(again, 0U);
  EXPECT_EQ(staging.memory(again).data, released);
}

TEST_F(StagingTest, TheFloorServesOneReadAtATimeWhenThePoolIsEmpty) {
  StagingMemory staging(pool, floor, range_bytes);
  fill();
  const std::size_t number = staging.acquire();
  ASSERT_NE(number, 0U);
  EXPECT_EQ(staging.memory(number).data, floor.data);
  EXPECT_EQ(staging.acquire(), 0U);
  staging.release(number);
  EXPECT_EQ(staging.acquire(), number);
}

TEST_F(StagingTest, ShrinkReturnsAllButTheFloor) {
  StagingMemory staging(pool, floor, range_bytes);
  const std::size_t before = pool->counters().used_bytes;
  ASSERT_NE(staging.acquire(), 0U);
  ASSERT_NE(staging.acquire(), 0U);
  EXPECT_GE(pool->counters().used_bytes, before + 2 * range_bytes);
  staging.shrink();
  EXPECT_EQ(pool->counters().used_bytes, before);
  fill();
  EXPECT_NE(staging.acquire(), 0U) << "the floor is left";
}

}  // namespace
}  // namespace hawser::transport::rdma
