#include "transport/rdma/memory/memory_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "transport/rdma/device/test/fake_device_testing.h"

namespace hawser::transport::rdma {
namespace {

using Use = MemoryPool::Use;

struct PoolTest : testing::Test {
  std::shared_ptr<MemoryPool> make(std::size_t bytes_max, std::size_t arena_bytes = 64 * 1024) {
    return std::make_shared<MemoryPool>(
        device, MemoryPoolOptions{.bytes_max = bytes_max, .arena_bytes = arena_bytes, .huge_pages = false});
  }
  const std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
};

TEST_F(PoolTest, AllThatIsReadAheadIsBounded) {
  const auto pool = make(std::size_t{8} << 20);
  EXPECT_TRUE(pool->begin_ahead(std::size_t{1} << 19));
  EXPECT_TRUE(pool->begin_ahead(std::size_t{1} << 19));
  EXPECT_FALSE(pool->begin_ahead(1)) << "more than an eighth of bytes_max";
  pool->end_ahead(std::size_t{1} << 19);
  EXPECT_TRUE(pool->begin_ahead(1));
  pool->end_ahead(1);
  pool->end_ahead(std::size_t{1} << 19);
  EXPECT_EQ(pool->ahead_bytes(), 0U);
}

TEST_F(PoolTest, StretchesDoNotOverlapAndComeTogetherAgain) {
  const auto pool = make(std::size_t{4} << 20);
  Random random(1);
  std::vector<RegisteredMemory> taken;
  for (int i = 0; i < 20'000; ++i) {
    if (taken.size() < 20 && random.chance(0.55)) {
      const std::size_t bytes = 1 + random.below(40'000);
      const auto memory = pool->acquire(bytes, Use::connection);
      ASSERT_TRUE(memory);
      EXPECT_GE(memory->bytes, bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data) % 4096, 0U);
      device->check_local({memory->data, static_cast<std::uint32_t>(memory->bytes), memory->local_key});
      for (const RegisteredMemory& other : taken) {
        EXPECT_TRUE(memory->data + memory->bytes <= other.data || other.data + other.bytes <= memory->data);
      }
      taken.push_back(*memory);
    } else if (!taken.empty()) {
      const std::size_t at = random.below(taken.size());
      pool->release(taken[at]);
      taken[at] = taken.back();
      taken.pop_back();
    }
  }
  for (const RegisteredMemory& memory : taken) pool->release(memory);
  EXPECT_EQ(pool->counters().used_bytes, 0U);
  EXPECT_GT(pool->counters().used_bytes_max, 100'000U);
  // The whole arena in one piece, without a second arena.
  const std::size_t registered = pool->counters().registered_bytes;
  const auto whole = pool->acquire(64 * 1024, Use::connection);
  ASSERT_TRUE(whole);
  EXPECT_EQ(pool->counters().registered_bytes, registered);
  pool->release(*whole);
}

TEST_F(PoolTest, TheWatermarkIsNamedAndPayloadsLeaveAPart) {
  const auto pool = make(256 * 1024);
  std::vector<RegisteredMemory> payloads;
  for (;;) {
    const auto memory = pool->acquire(16 * 1024, Use::payload);
    if (!memory) break;
    payloads.push_back(*memory);
  }
  EXPECT_EQ(payloads.size(), 12U) << "three quarters of it";
  std::vector<RegisteredMemory> chunks;
  for (;;) {
    const auto memory = pool->acquire(16 * 1024, Use::connection);
    if (memory) {
      chunks.push_back(*memory);
      continue;
    }
    EXPECT_EQ(memory.error().code, ErrorCode::overloaded);
    EXPECT_NE(memory.error().text.find("memory_bytes_max"), std::string::npos) << memory.error().text;
    break;
  }
  EXPECT_EQ(chunks.size(), 4U);
  EXPECT_EQ(pool->counters().refused, 2U);
  EXPECT_LE(pool->counters().registered_bytes, 256U * 1024);
  for (const auto& memory : payloads) pool->release(memory);
  for (const auto& memory : chunks) pool->release(memory);
}

TEST_F(PoolTest, OnlyPayloadsCanBeReadByPeers) {
  const auto pool = make(std::size_t{1} << 20);
  const auto chunk = pool->acquire(4096, Use::connection);
  const auto payload = pool->acquire(4096, Use::payload);
  ASSERT_TRUE(chunk && payload);
  EXPECT_FALSE(device->regions.at(chunk->remote_key).access.remote_read);
  EXPECT_TRUE(device->regions.at(payload->remote_key).access.remote_read);
  pool->release(*chunk);
  pool->release(*payload);
}

// Registering takes long. Threads that find free memory, or only release memory, do not wait for it.
TEST_F(PoolTest, NobodyWaitsForARegistrationThatHeDoesNotNeed) {
  const auto pool = make(std::size_t{1} << 20);
  const auto chunk = pool->acquire(4096, Use::connection);
  ASSERT_TRUE(chunk);
  bool served = false;
  device->registering = [&] {
    if (std::exchange(served, true)) return;
    auto other = std::async(std::launch::async, [&] {
      const auto more = pool->acquire(4096, Use::connection);
      EXPECT_TRUE(more);
      pool->release(*more);
      return pool->counters().used_bytes;
    });
    ASSERT_EQ(other.wait_for(std::chrono::minutes(2)), std::future_status::ready);
    EXPECT_EQ(other.get(), 4096U);
  };
  const auto payload = pool->acquire(4096, Use::payload);
  ASSERT_TRUE(payload);
  EXPECT_TRUE(served);
  pool->release(*payload);
  pool->release(*chunk);
}

TEST_F(PoolTest, RoomThatWasMadeIsTakenWithoutRegistering) {
  const auto pool = make(std::size_t{1} << 20);
  const std::vector<std::size_t> stretches = {16'384, 4096, 4096, 16'384, 16'384, 16'384};
  ASSERT_TRUE(pool->make_room(stretches, Use::connection));
  const std::size_t registered = device->regions.size();
  EXPECT_NE(registered, 0U);
  ASSERT_TRUE(pool->make_room(stretches, Use::connection));
  EXPECT_EQ(device->regions.size(), registered) << "there was room already";
  std::vector<RegisteredMemory> taken;
  for (const std::size_t bytes : stretches) taken.push_back(*pool->acquire(bytes, Use::connection));
  EXPECT_EQ(device->regions.size(), registered);
  for (const RegisteredMemory& one : taken) pool->release(one);
  const std::vector<std::size_t> too_much(100, std::size_t{64} << 10);
  const auto refused = pool->make_room(too_much, Use::connection);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::overloaded);
}

TEST_F(PoolTest, WhatTheDeviceRefusesIsTold) {
  const auto pool = make(std::size_t{1} << 20);
  device->refuse_memory = true;
  EXPECT_EQ(pool->acquire(4096, Use::connection).error().text, "refused");
  device->refuse_memory = false;
  const auto memory = pool->acquire(4096, Use::connection);
  ASSERT_TRUE(memory);
  pool->release(*memory);
}

TEST_F(PoolTest, IdleArenasAreGivenBack) {
  const auto pool = make(std::size_t{1} << 20);
  const auto one = pool->acquire(4096, Use::connection);
  const auto other = pool->acquire(64 * 1024, Use::connection);
  ASSERT_TRUE(one && other);
  EXPECT_EQ(device->regions.size(), 2U);
  pool->release(*other);
  const Time start{};
  pool->reclaim(start);
  pool->reclaim(start + std::chrono::seconds(9));
  EXPECT_EQ(device->regions.size(), 2U);
  EXPECT_FALSE(pool->reclaim_is_due(start + std::chrono::seconds(9)));
  EXPECT_TRUE(pool->reclaim_is_due(start + std::chrono::seconds(10)));
  pool->reclaim(start + std::chrono::seconds(10));
  EXPECT_EQ(device->regions.size(), 1U) << "the one in use stays";
  EXPECT_EQ(pool->counters().registered_bytes, 64U * 1024);
  pool->release(*one);
}

TEST_F(PoolTest, BlocksAreFoundByAnyPartOfThemAndGoBackByThemselves) {
  const auto pool = make(std::size_t{1} << 20);
  const MemoryPool::PayloadBlock block = pool->acquire_block(20'000);
  ASSERT_NE(block.block, nullptr);
  const std::byte* const data = block.memory.data;
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, std::size_t{9000}, std::size_t{19'000}}) {
    const auto found = pool->retain(data + offset, 1000);
    ASSERT_EQ(found.block, block.block);
    found.block->release();
  }
  EXPECT_EQ(pool->retain(data + 30'000, 10'000).block, nullptr) << "beyond its end";
  std::vector<std::byte> elsewhere(100);
  EXPECT_EQ(pool->retain(elsewhere.data(), elsewhere.size()).block, nullptr);
  EXPECT_EQ(pool->counters().used_bytes, block.memory.bytes);
  std::thread([&] { block.block->release(); }).join();
  EXPECT_EQ(pool->counters().used_bytes, 0U);
  EXPECT_EQ(pool->retain(data, 100).block, nullptr);
}

}  // namespace
}  // namespace hawser::transport::rdma
