#include "transport/rdma/user_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/lent_block.h"
#include "transport/rdma/fake_device_testing.h"

namespace hawser::transport::rdma {
namespace {

struct Counted final : LentBlock {
  Counted() : LentBlock([](LentBlock&) noexcept {}) {}
};

struct UserMemoryTest : testing::Test {
  UserMemory table;
  const std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  const std::shared_ptr<FakeDevice> other = std::make_shared<FakeDevice>();
  std::vector<std::byte> memory = std::vector<std::byte>(10'000);
  Counted block;
};

TEST_F(UserMemoryTest, IsFoundByAnyPartThatLiesWithin) {
  ASSERT_TRUE(table.add(memory, block));
  for (const std::size_t offset : {0, 1, 5000, 9999}) {
    const UserMemory::Found found = table.retain(device, memory.data() + offset, memory.size() - offset);
    ASSERT_EQ(found.block, &block);
    EXPECT_FALSE(block.unique());
    EXPECT_TRUE(device->regions.at(found.remote_key).access.remote_read);
    EXPECT_FALSE(device->regions.at(found.remote_key).access.remote_write);
    block.release();
    EXPECT_EQ(table.retain(device, memory.data() + offset, memory.size() - offset + 1).block, nullptr);
  }
  EXPECT_EQ(table.retain(device, memory.data() + memory.size(), 0).block, nullptr);
  EXPECT_EQ(table.retain(device, memory.data() - 1, 1).block, nullptr);
  EXPECT_EQ(table.bytes(), memory.size());
  table.remove(memory.data());
  EXPECT_EQ(table.retain(device, memory.data(), 1).block, nullptr);
  EXPECT_TRUE(device->regions.empty());
  EXPECT_EQ(table.bytes(), 0U);
}

TEST_F(UserMemoryTest, IsRegisteredOnceWithEachDevice) {
  ASSERT_TRUE(table.add(memory, block));
  ASSERT_TRUE(table.register_with(memory.data(), device));
  EXPECT_EQ(device->regions.size(), 1U);
  for (int i = 0; i < 3; ++i) {
    ASSERT_NE(table.retain(device, memory.data(), 1).block, nullptr);
    ASSERT_NE(table.retain(other, memory.data(), 1).block, nullptr);
    block.release();
    block.release();
  }
  EXPECT_EQ(device->regions.size(), 1U);
  EXPECT_EQ(other->regions.size(), 1U);
  table.remove(memory.data());
  EXPECT_TRUE(device->regions.empty());
  EXPECT_TRUE(other->regions.empty());
}

TEST_F(UserMemoryTest, ADeviceThatRefusesIsAskedOnce) {
  ASSERT_TRUE(table.add(memory, block));
  device->refuse_memory = true;
  EXPECT_FALSE(table.register_with(memory.data(), device));
  device->refuse_memory = false;
  EXPECT_EQ(table.retain(device, memory.data(), 1).block, nullptr);
  EXPECT_NE(table.retain(other, memory.data(), 1).block, nullptr);
  block.release();
  table.remove(memory.data());
}

TEST_F(UserMemoryTest, OverlapsAreRefused) {
  const MutableBytes whole(memory);
  ASSERT_TRUE(table.add(whole.subspan(1000, 1000), block));
  Counted another;
  EXPECT_FALSE(table.add(whole, another));
  EXPECT_FALSE(table.add(whole.subspan(1999, 1), another));
  EXPECT_FALSE(table.add(whole.subspan(0, 1001), another));
  EXPECT_FALSE(table.add(whole.subspan(1200, 10), another));
  EXPECT_TRUE(table.add(whole.subspan(2000, 1000), another));
  EXPECT_TRUE(table.add(whole.first(1000), another));
  for (const std::size_t at : {0, 1000, 2000}) table.remove(memory.data() + at);
}

}  // namespace
}  // namespace hawser::transport::rdma
