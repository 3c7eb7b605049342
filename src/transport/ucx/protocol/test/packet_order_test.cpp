#include "transport/ucx/protocol/packet_order.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace hawser::transport::ucx {
namespace {

using Kind = UcxHeader::Kind;

UcxTarget::ActiveMessage packet(std::uint32_t index, Kind kind = Kind::packed, Block* block = nullptr) {
  return {.header = {.index = index, .kind = kind}, .size = index, .block = block};
}

std::vector<std::size_t> in_order(PacketOrder& packets) {
  std::vector<std::size_t> sizes;
  for (; !packets.empty(); packets.pop()) sizes.push_back(packets.front().size);
  return sizes;
}

TEST(UcxPacketOrder, AnEarlyPacketWaitsForThoseBeforeIt) {
  PacketOrder packets;
  EXPECT_TRUE(packets.add(packet(2)));
  EXPECT_TRUE(packets.add(packet(1)));
  EXPECT_TRUE(packets.add(packet(4, Kind::fin)));
  EXPECT_TRUE(packets.empty());
  EXPECT_TRUE(packets.add(packet(0)));
  EXPECT_EQ(in_order(packets), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(packets.expected(), 3U);
  EXPECT_TRUE(packets.add(packet(3)));
  EXPECT_FALSE(packets.front().end);
  packets.pop();
  EXPECT_TRUE(packets.front().end);
}

TEST(UcxPacketOrder, AnIndexArrivesOnce) {
  PacketOrder packets;
  EXPECT_TRUE(packets.add(packet(0)));
  EXPECT_FALSE(packets.add(packet(0))) << "it is in order already";
  EXPECT_TRUE(packets.add(packet(5)));
  EXPECT_FALSE(packets.add(packet(5))) << "it waits already";
  EXPECT_EQ(in_order(packets), std::vector<std::size_t>{0});
}

TEST(UcxPacketOrder, APacketMayOvertakeALimitedNumber) {
  PacketOrder packets;
  EXPECT_FALSE(packets.add(packet(PacketOrder::overtaking_max)));
  EXPECT_TRUE(packets.add(packet(PacketOrder::overtaking_max - 1)));
  EXPECT_TRUE(packets.add(packet(0)));
  EXPECT_TRUE(packets.add(packet(PacketOrder::overtaking_max)));
}

TEST(UcxPacketOrder, EveryReferenceIsReleasedOnce) {
  const Buffer late = Buffer::allocate(8);
  const Buffer early = Buffer::allocate(8);
  const Buffer refused = Buffer::allocate(8);
  for (const Buffer* buffer : {&late, &early, &refused}) buffer->block()->retain();
  {
    PacketOrder packets;
    const Buffer taken = Buffer::allocate(8);
    EXPECT_TRUE(packets.add(packet(1, Kind::packed, taken.block())));
    EXPECT_TRUE(packets.add(packet(0)));
    packets.pop();
    EXPECT_EQ(packets.front().block, taken.block());
    packets.pop();  // It had waited for the other one, and is the caller's now.
    EXPECT_TRUE(packets.add(packet(2, Kind::packed, late.block())));
    EXPECT_TRUE(packets.add(packet(7, Kind::packed, early.block())));
    EXPECT_FALSE(packets.add(packet(7, Kind::packed, refused.block())));
    taken.block()->retain();
    packets.clear();
    ASSERT_FALSE(taken.block()->unique()) << "it was released by somebody else";
    taken.block()->release();
    EXPECT_TRUE(late.block()->unique());
    EXPECT_TRUE(early.block()->unique());
  }
  EXPECT_TRUE(late.block()->unique());
  EXPECT_FALSE(refused.block()->unique()) << "its reference stays with the caller";
  refused.block()->release();
}

}  // namespace
}  // namespace hawser::transport::ucx
