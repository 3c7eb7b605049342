#include "transport/rdma/protocol/receive_ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "transport/rdma/device/test/fake_device_testing.h"

namespace hawser::transport::rdma {
namespace {

struct RingTest : testing::Test, ReceiveRingOwner {
  void SetUp() override {
    ASSERT_TRUE(ring->grow(4));
    ASSERT_TRUE(post());
  }
  void chunks_returned() noexcept override { ++returned; }
  Result<void> post() {
    return ring->repost(
        [this](std::span<const ReceiveRequest> requests) -> Result<void> {
          for (const ReceiveRequest& request : requests) posted.push_back(request.id);
          return {};
        },
        [this](const ReceiveChunk&, std::uint32_t user) { notified.push_back(user); });
  }
  // Receives a packet of this queue pair, reads it, and keeps the chunk.
  Buffer receive_and_keep(std::uint32_t queue_pair) {
    ReceiveChunk* const chunk = ring->completed(posted.front());
    posted.erase(posted.begin());
    chunk->queue_pair = queue_pair;
    Buffer kept = Buffer::keep(chunk, chunk->bytes(), 8);
    ring->finish(*chunk);
    return kept;
  }

  const std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  const std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>(
      device, MemoryPoolOptions{.bytes_max = std::size_t{1} << 20, .arena_bytes = 64 * 1024, .huge_pages = false});
  std::shared_ptr<ReceiveRing> ring = std::make_shared<ReceiveRing>(pool, 4096, *this);
  std::vector<std::uint64_t> posted;
  std::vector<std::uint32_t> notified;
  int returned = 0;
};

// Between the last collect() and close(), another thread drops the chunk that it held. No later event would destroy the
// ring.
TEST_F(RingTest, AChunkThatCameBackBeforeTheEndDoesNotKeepTheRing) {
  Buffer early = receive_and_keep(1);
  Buffer late = receive_and_keep(1);
  EXPECT_EQ(ring->held(), 2U);
  std::thread([&] { early = {}; }).join();
  EXPECT_EQ(returned, 1);
  ring->close();
  const std::weak_ptr<ReceiveRing> ended = ring;
  ring.reset();
  EXPECT_FALSE(ended.expired()) << "its memory is held";
  std::thread([&] { late = {}; }).join();
  EXPECT_TRUE(ended.expired()) << "the ring is kept for ever";
  EXPECT_EQ(pool->counters().used_bytes, 0U);
}

TEST_F(RingTest, WhatNobodyHoldsEndsWithTheRing) {
  Buffer kept = receive_and_keep(1);
  kept = {};
  ring->close();
  ring.reset();
  EXPECT_EQ(pool->counters().used_bytes, 0U);
}

// Another queue pair may get the number of one that is gone before its chunk is posted again. The other one must not
// get a credit for it.
TEST_F(RingTest, ChunksOfAQueuePairThatIsGoneAreNobodys) {
  Buffer kept = receive_and_keep(7);
  Buffer other = receive_and_keep(8);
  ring->disown(7);
  EXPECT_EQ(ring->disowned(), 1U);
  kept = {};
  other = {};
  ring->collect();
  ASSERT_TRUE(post());
  EXPECT_EQ(notified, std::vector<std::uint32_t>{8});
  EXPECT_EQ(ring->disowned(), 0U);
}

}  // namespace
}  // namespace hawser::transport::rdma
