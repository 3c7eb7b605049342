#include "transport/rdma/protocol/packet_chunks.h"

#include <gtest/gtest.h>

#include <memory>

#include "transport/rdma/device/test/fake_device_testing.h"
#include "transport/rdma/protocol/control_slots.h"

namespace hawser::transport::rdma {
namespace {

constexpr std::size_t chunk_bytes = 4096;

struct PacketChunksTest : testing::Test {
  PacketChunksTest() { pair.peer = &pair; }
  void TearDown() override {
    chunks.reset();
    EXPECT_EQ(pool->counters().used_bytes, 0U) << "a chunk did not return to the pool";
  }
  void make(const PacketChunkOptions& options) {
    const auto first = pool->acquire(chunk_bytes, MemoryPool::Use::connection);
    ASSERT_TRUE(first);
    chunks.emplace(queue, pool, *first, options);
  }
  // Writes a record and closes its packet.
  void write_packet(std::size_t bytes) {
    ASSERT_TRUE(chunks->make_room(bytes));
    chunks->written(bytes, bytes);
    chunks->close_packet();
  }
  // Posts the oldest packet. Returns the id.
  std::uint64_t post() {
    const PacketChunks::Packet packet = chunks->pop();
    const std::uint64_t id = queue.slots.post(true).id;
    chunks->posted(packet, id);
    return id;
  }

  const std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  const std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>(
      device, MemoryPoolOptions{.bytes_max = 256 * 1024, .arena_bytes = 64 * 1024, .huge_pages = false});
  FakePair pair{*device, 0, 16};
  WorkQueue queue{pair, RdmaCredits(8, 8), SendSlots(16, 4)};
  std::optional<PacketChunks> chunks;
};

TEST_F(PacketChunksTest, ThePacketsOfAChunkLieOneBehindTheOther) {
  make({.chunk_bytes = chunk_bytes, .packet_bytes_max = 1024, .chunks_max = 1});
  EXPECT_EQ(chunks->room(), 1024 - PacketChunks::tail_bytes);
  std::byte* const begin = chunks->end();
  chunks->written(400, 380);
  chunks->written(200, 190);
  EXPECT_EQ(chunks->open_bytes(), 600U);
  chunks->close_packet();
  chunks->close_packet();
  EXPECT_EQ(chunks->open_bytes(), 0U);
  EXPECT_EQ(chunks->room(), 1024 - PacketChunks::tail_bytes);
  chunks->written(100, 90);
  const PacketChunks::Packet packet = chunks->pop();
  EXPECT_TRUE(chunks->empty()) << "an empty packet was closed";
  EXPECT_EQ(packet.end - packet.begin, 600U);
  EXPECT_EQ(packet.position, 570U) << "the record behind it does not belong to it";
  EXPECT_EQ(packet.chunk->memory.data + packet.begin, begin);
  EXPECT_EQ(chunks->tail(packet), nullptr) << "the next packet has begun there";
}

TEST_F(PacketChunksTest, IdsAreAppendedToTheLastPacket) {
  make({.chunk_bytes = chunk_bytes, .packet_bytes_max = 1024, .chunks_max = 1});
  std::byte* const begin = chunks->end();
  write_packet(200);
  const PacketChunks::Packet packet = chunks->pop();
  EXPECT_EQ(chunks->tail(packet), begin + 200);
  chunks->use_tail(packet, 12);
  EXPECT_EQ(chunks->end(), begin + 216) << "records are aligned to 8";
  EXPECT_EQ(chunks->open_bytes(), 0U);
}

TEST_F(PacketChunksTest, AChunkIsUsedAgainWhenItsPacketsHaveBeenSent) {
  make({.chunk_bytes = chunk_bytes, .packet_bytes_max = chunk_bytes, .chunks_max = 2});
  std::byte* const first = chunks->end();
  write_packet(4000);
  write_packet(4000);
  EXPECT_FALSE(chunks->make_room(100)) << "a third chunk";
  const std::uint64_t one = post();
  EXPECT_FALSE(chunks->make_room(100)) << "the device reads the first chunk";
  ASSERT_TRUE(queue.slots.complete(one));
  EXPECT_TRUE(chunks->make_room(100));
  EXPECT_EQ(chunks->end(), first);
  EXPECT_EQ(chunks->pop().position, 8000U);
}

TEST_F(PacketChunksTest, AChunkWithAnOpenPacketIsNotRecycled) {
  make({.chunk_bytes = chunk_bytes, .packet_bytes_max = chunk_bytes, .chunks_max = 1});
  std::byte* const begin = chunks->end();
  chunks->written(64, 64);
  chunks->recycle();
  EXPECT_EQ(chunks->end(), begin + 64);
  chunks->close_packet();
  chunks->recycle();
  EXPECT_EQ(chunks->end(), begin + 64) << "its packet was not posted";
  ASSERT_TRUE(queue.slots.complete(post()));
  chunks->recycle();
  EXPECT_EQ(chunks->end(), begin);
}

TEST_F(PacketChunksTest, TheLastQuarterOfAChunkIsItsEnd) {
  make({.chunk_bytes = chunk_bytes, .packet_bytes_max = chunk_bytes, .chunks_max = 1});
  write_packet(3072);
  write_packet(8);
  EXPECT_FALSE(chunks->ends_chunk(chunks->pop()));
  EXPECT_TRUE(chunks->ends_chunk(chunks->pop()));
}

TEST_F(PacketChunksTest, ASlotOfControlIsUsedAgainWhenTheDeviceHasReadIt) {
  const auto memory = pool->acquire(ControlSlots::bytes, MemoryPool::Use::connection);
  ASSERT_TRUE(memory);
  ControlSlots control(pool, *memory);
  SendSlots sends(ControlSlots::count + 8, 4);
  for (std::size_t i = 0; i < ControlSlots::count; ++i) {
    EXPECT_EQ(control.next(sends), memory->data + i * ControlSlots::slot_bytes);
    control.use(sends.post(true).id);
  }
  EXPECT_EQ(control.next(sends), nullptr);
  ASSERT_TRUE(sends.complete(1));
  EXPECT_EQ(control.next(sends), memory->data);
  control.use(sends.post(true).id);
  EXPECT_EQ(control.next(sends), nullptr) << "the second slot is still read";
}

}  // namespace
}  // namespace hawser::transport::rdma
