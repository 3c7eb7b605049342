#include "transport/rdma/protocol/arrived_packets.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/rdma/device/test/fake_device_testing.h"

namespace hawser::transport::rdma {
namespace {

struct ArrivedPacketsTest : testing::Test, ReceiveRingOwner {
  void SetUp() override {
    ASSERT_TRUE(ring->grow(4));
    ASSERT_TRUE(ring->repost(
        [this](std::span<const ReceiveRequest> requests) -> Result<void> {
          for (const ReceiveRequest& request : requests) chunks.push_back(ring->completed(request.id));
          return {};
        },
        [](const ReceiveChunk&, std::uint32_t) {}));
  }
  void TearDown() override { ring->close(); }
  void chunks_returned() noexcept override {}

  const std::byte* at(std::size_t packet, std::size_t offset) const { return chunks[packet]->bytes() + offset; }
  // The records of a packet are 10 bytes long here.
  void arrive(std::size_t packet, std::size_t records) { packets.push({chunks[packet], 0, records * 10}); }

  const std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  const std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>(
      device, MemoryPoolOptions{.bytes_max = std::size_t{1} << 20, .arena_bytes = 64 * 1024, .huge_pages = false});
  const std::shared_ptr<ReceiveRing> ring = std::make_shared<ReceiveRing>(pool, 4096, *this);
  std::vector<ReceiveChunk*> chunks;
  ArrivedPackets packets;
};

TEST_F(ArrivedPacketsTest, EveryRecordIsSearchedOnce) {
  EXPECT_TRUE(packets.unsearched().empty()) << "no packet has arrived";
  arrive(0, 2);
  arrive(1, 1);
  EXPECT_EQ(packets.unsearched().data(), at(0, 0));
  EXPECT_EQ(packets.unsearched().size(), 20U);
  EXPECT_FALSE(packets.front_is_searched());
  packets.searched(10);
  EXPECT_TRUE(packets.front_is_searched());
  EXPECT_EQ(packets.unsearched().data(), at(0, 10));
  packets.searched(10);
  EXPECT_EQ(packets.unsearched().data(), at(1, 0));
  packets.searched(10);
  EXPECT_TRUE(packets.unsearched().empty());
  arrive(2, 1);
  EXPECT_EQ(packets.unsearched().data(), at(2, 0)) << "a packet that arrives later is not missed";
}

TEST_F(ArrivedPacketsTest, DeliveredRecordsAreNotSearched) {
  arrive(0, 3);
  arrive(1, 2);
  packets.front().begin = 20;
  EXPECT_EQ(packets.front().rest().size(), 10U);
  EXPECT_EQ(packets.unsearched().data(), at(0, 20));
  EXPECT_EQ(packets.pop().chunk, chunks[0]);
  EXPECT_EQ(packets.unsearched().data(), at(1, 0));
  packets.front().begin = 10;
  EXPECT_FALSE(packets.front_is_searched());
  packets.front_searched(10);
  EXPECT_TRUE(packets.front_is_searched());
  EXPECT_TRUE(packets.unsearched().empty());
}

TEST_F(ArrivedPacketsTest, APacketBehindAnotherIsNotTakenForASearchedOne) {
  arrive(0, 1);
  packets.front_searched(10);
  packets.pop();
  arrive(1, 1);
  EXPECT_FALSE(packets.front_is_searched());
  arrive(2, 1);
  EXPECT_EQ(packets.unsearched().data(), at(1, 0));
  packets.searched(10);
  EXPECT_EQ(packets.unsearched().data(), at(2, 0));
  packets.pop();
  EXPECT_FALSE(packets.front_is_searched());
}

}  // namespace
}  // namespace hawser::transport::rdma
