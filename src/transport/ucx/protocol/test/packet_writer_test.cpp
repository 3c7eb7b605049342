#include "transport/ucx/protocol/packet_writer.h"

#include <gtest/gtest.h>

#include <cstring>

namespace hawser::transport::ucx {
namespace {

constexpr std::size_t no_limit = SIZE_MAX;

struct PacketWriterTest : testing::Test {
  // Adds an entry of `bytes` bytes, a multiple of 8, whose head consists of `fill`.
  void add(std::size_t bytes, char fill = 'x', std::size_t packet_bytes_max = no_limit) {
    const std::size_t head = bytes - UcxEntry::prefix_bytes;
    std::memset(writer.reserve(head), fill, head);
    ASSERT_NE(writer.extend(head, bytes, packet_bytes_max), nullptr);
    writer.add(bytes, bytes);
  }
  PacketWriter::Packet pop() {
    const PacketWriter::Packet packet = writer.pop();
    if (packet.block != nullptr) packet.block->release();
    return packet;
  }

  PacketWriter writer;
};

TEST_F(PacketWriterTest, EntriesShareAPacketUntilItIsClosed) {
  add(24);
  add(40);
  EXPECT_TRUE(writer.empty());
  EXPECT_EQ(writer.index(), 0U);
  writer.seal();
  writer.seal();
  EXPECT_EQ(writer.index(), 1U);
  add(16);
  writer.seal();
  const PacketWriter::Packet first = pop();
  EXPECT_EQ(first.size, 64U);
  EXPECT_EQ(first.counted, 64U);
  const PacketWriter::Packet second = pop();
  EXPECT_EQ(second.begin, first.begin + first.size) << "packets share a block";
  EXPECT_EQ(second.size, 16U);
  EXPECT_EQ(second.counted, 16U);
  EXPECT_TRUE(writer.empty()) << "an empty packet was closed";
}

TEST_F(PacketWriterTest, APacketIsLimitedAndAnEntryIsWhole) {
  add(64, 'a', 100);
  add(64, 'b', 100);
  ASSERT_FALSE(writer.empty());
  EXPECT_EQ(pop().size, 64U);
  writer.seal();
  EXPECT_EQ(pop().size, 64U);
  add(200, 'c', 100);
  writer.seal();
  EXPECT_EQ(pop().size, 200U);
}

TEST_F(PacketWriterTest, AHeadMovesToTheBlockThatHasRoomForItsPayload) {
  add(PacketWriter::block_bytes - 64);
  std::byte* const head = writer.reserve(16);
  std::memset(head, 'h', 16);
  std::byte* const entry = writer.extend(16, 1024, no_limit);
  EXPECT_NE(entry + UcxEntry::prefix_bytes, head);
  EXPECT_EQ(std::memcmp(entry + UcxEntry::prefix_bytes, "hhhhhhhhhhhhhhhh", 16), 0);
  EXPECT_FALSE(writer.empty()) << "the packet of the filled block is closed";
  EXPECT_EQ(writer.index(), 1U);
  writer.add(1024, 1000);
  writer.seal();
  EXPECT_EQ(pop().counted, PacketWriter::block_bytes - 64);
  const PacketWriter::Packet second = pop();
  EXPECT_EQ(second.begin, 0U);
  EXPECT_EQ(second.counted, 1000U);
}

TEST_F(PacketWriterTest, AFinIsAPacketOfItsOwn) {
  add(16);
  writer.add_fin();
  EXPECT_EQ(writer.index(), 2U);
  EXPECT_NE(pop().block, nullptr);
  EXPECT_EQ(pop().block, nullptr);
  EXPECT_TRUE(writer.empty());
}

TEST_F(PacketWriterTest, ClearReleasesEveryPacket) {
  add(16);
  writer.seal();
  add(16);
  writer.seal();
  const PacketWriter::Packet kept = writer.pop();
  writer.add_fin();
  writer.clear();
  EXPECT_TRUE(writer.empty());
  EXPECT_TRUE(kept.block->unique());
  kept.block->release();
}

}  // namespace
}  // namespace hawser::transport::ucx
