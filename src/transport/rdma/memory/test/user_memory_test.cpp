#include "transport/rdma/memory/user_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "heap/external_block.h"
#include "transport/rdma/device/test/fake_device_testing.h"

namespace hawser::transport::rdma {
namespace {

struct Counted final : ExternalBlock {
  Counted() : ExternalBlock([](ExternalBlock&) noexcept {}) {}
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

// Peers may not read such memory as a payload, because calls do not carry it.
TEST_F(UserMemoryTest, MemoryBehindADescriptorIsRegisteredByIt) {
  ASSERT_TRUE(table.add(DmabufMemory{.addresses = memory, .descriptor = 17, .offset = 8192}, block));
  const UserMemory::Found found = table.retain(device, memory.data() + 5, 100);
  ASSERT_EQ(found.block, &block);
  EXPECT_TRUE(found.dmabuf);
  const FakeDevice::Registered& region = device->regions.at(found.local_key);
  EXPECT_EQ(region.descriptor, 17);
  EXPECT_EQ(region.offset, 8192U);
  EXPECT_EQ(region.memory.data(), memory.data());
  EXPECT_EQ(region.memory.size(), memory.size());
  EXPECT_EQ(region.access, Access{});
  block.release();
  other->refuse_memory = true;
  const Result<void> refused = table.register_with(memory.data(), other);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_EQ(refused.error().text, "fake0 does not register dma-buf descriptors");
  table.remove(memory.data());
  EXPECT_TRUE(device->regions.empty());
  ASSERT_TRUE(table.add(memory, block));
  EXPECT_FALSE(table.retain(device, memory.data(), 1).dmabuf);
  block.release();
  table.remove(memory.data());
}

// After a pause, a transfer registers the memory again with a device that refused, on a thread that may block.
// register_with() does not wait for the pause.
TEST_F(UserMemoryTest, ARefusalIsNotForEver) {
  const auto shared = std::make_shared<UserMemory>();
  ASSERT_TRUE(shared->add(memory, block));
  device->refuse_memory = true;
  EXPECT_FALSE(shared->register_with(memory.data(), device));
  device->refuse_memory = false;
  std::vector<std::function<void()>> asked;
  const UserMemory::Later later = [&](std::function<void()> work) { asked.push_back(std::move(work)); };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (asked.empty() && std::chrono::steady_clock::now() < deadline) {
    EXPECT_EQ(shared->retain(device, memory.data(), 1, later).block, nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(shared->retain(device, memory.data(), 1, later).block, nullptr);
  EXPECT_EQ(asked.size(), 1U) << "asked for at each transfer";
  EXPECT_TRUE(device->regions.empty()) << "registered by a transfer";
  asked.front()();
  EXPECT_NE(shared->retain(device, memory.data(), 1, later).block, nullptr);
  block.release();
  shared->remove(memory.data());
  asked.front()();  // The memory has been removed meanwhile.
}

// A registration that failed for lack of memory must not block the removal of the memory.
TEST_F(UserMemoryTest, ARegistrationWithoutMemoryIsARefusal) {
  ASSERT_TRUE(table.add(memory, block));
  device->registering = [] { throw std::bad_alloc(); };
  const auto refused = table.register_with(memory.data(), device);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::overloaded);
  device->registering = nullptr;
  EXPECT_TRUE(table.register_with(memory.data(), device));
  table.remove(memory.data());
  EXPECT_TRUE(device->regions.empty());
}

// Registering takes long. Users of other memory, or of the same memory over another device, do not wait for it.
TEST_F(UserMemoryTest, NobodyWaitsForARegistrationThatHeDoesNotNeed) {
  ASSERT_TRUE(table.add(memory, block));
  ASSERT_TRUE(table.register_with(memory.data(), other));
  std::vector<std::byte> more(4096);
  Counted another;
  std::size_t looked = 0;
  device->registering = [&] {
    if (looked++ != 0) return;
    ASSERT_NE(table.retain(other, memory.data(), 1).block, nullptr);
    block.release();
    EXPECT_EQ(table.retain(device, memory.data(), 1).block, nullptr) << "it is being registered";
    ASSERT_TRUE(table.add(more, another));
    ASSERT_TRUE(table.register_with(more.data(), other));
    table.remove(more.data());
  };
  EXPECT_TRUE(table.register_with(memory.data(), device));
  EXPECT_EQ(looked, 1U);
  table.remove(memory.data());
}

// The memory may be unmapped once it is removed, so a registration in progress must have ended.
TEST_F(UserMemoryTest, RemovingWaitsForARegistrationAtHand) {
  ASSERT_TRUE(table.add(memory, block));
  std::atomic<bool> begun = false;
  std::atomic<bool> removed = false;
  std::atomic<bool> ended = false;
  device->registering = [&] {
    begun = true;
    // Long enough to detect a removal that does not wait.
    for (int i = 0; i < 50 && !removed; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(removed);
    ended = true;
  };
  std::thread registering([&] { EXPECT_TRUE(table.register_with(memory.data(), device)); });
  while (!begun) std::this_thread::yield();
  table.remove(memory.data());
  EXPECT_TRUE(ended);
  removed = true;
  registering.join();
  EXPECT_TRUE(device->regions.empty());
}

TEST_F(UserMemoryTest, ADeviceThatIsOpenedLaterGetsToKnowAll) {
  std::vector<std::byte> more(4096);
  Counted another;
  ASSERT_TRUE(table.add(memory, block));
  ASSERT_TRUE(table.add(more, another));
  table.register_all(device);
  EXPECT_EQ(device->regions.size(), 2U);
  table.remove(memory.data());
  table.remove(more.data());
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
