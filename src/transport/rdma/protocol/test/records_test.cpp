#include "transport/rdma/protocol/records.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "transport/rdma/connection/parameters.h"
#include "transport/rdma/protocol/credits.h"
#include "transport/rdma/protocol/send_slots.h"

namespace hawser::transport::rdma {
namespace {

std::vector<std::byte> record(RdmaRecordKind kind, std::uint32_t head, std::uint32_t payload, std::uint32_t carried,
                              std::size_t body) {
  std::vector<std::byte> bytes(RecordHeader::bytes + body);
  write_header(bytes.data(), {kind, head, payload, carried});
  return bytes;
}

TEST(RdmaRecords, AMessageIsReadInPlace) {
  const auto bytes = record(RdmaRecordKind::message, 5, 3, 8, 16);
  const auto parsed = parse_record(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->head.data(), bytes.data() + 16);
  EXPECT_EQ(parsed->head.size(), 5U);
  EXPECT_EQ(parsed->carried.data(), bytes.data() + 24);
  EXPECT_EQ(parsed->carried.size(), 3U);
  EXPECT_EQ(parsed->size, 32U);
}

TEST(RdmaRecords, WhatIsMalformedIsRefused) {
  EXPECT_FALSE(parse_record(record(RdmaRecordKind::message, 5, 3, 7, 16))) << "not whole";
  EXPECT_FALSE(parse_record(record(RdmaRecordKind::message, 5, 3, 8, 15))) << "cut off";
  EXPECT_FALSE(parse_record(record(RdmaRecordKind::message, 0xffffffff, 3, 2, 16))) << "sums that wrap";
  EXPECT_FALSE(parse_record(record(RdmaRecordKind::begin, 4, 4, 8, 8))) << "all of it";
  EXPECT_TRUE(parse_record(record(RdmaRecordKind::begin, 4, 5, 8, 8)));
  EXPECT_FALSE(parse_record(record(RdmaRecordKind::fragment, 0, 0, 0, 8))) << "of nothing";
  EXPECT_FALSE(parse_record(record(RdmaRecordKind::fragment, 1, 0, 8, 8)));
  EXPECT_FALSE(parse_record(record(static_cast<RdmaRecordKind>(5), 0, 0, 0, 0)));
  EXPECT_FALSE(parse_record(record(static_cast<RdmaRecordKind>(0), 0, 0, 0, 0)));
  EXPECT_FALSE(parse_record(Bytes(record(RdmaRecordKind::message, 0, 0, 0, 0)).first(15)));
}

TEST(RdmaRecords, RandomBytesNeverLeadBeyondTheirEnd) {
  Random random(1);
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::byte> bytes(1 + random.below(200));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(random.chance(0.8) ? 8 : 256));
    const auto parsed = parse_record(bytes);
    if (!parsed) continue;
    ASSERT_LE(parsed->size, bytes.size());
    for (const Bytes part : {parsed->head, parsed->carried}) {
      if (part.empty()) continue;
      ASSERT_GE(part.data(), bytes.data());
      ASSERT_LE(part.data() + part.size(), bytes.data() + bytes.size());
    }
    if (parsed->header.kind != RdmaRecordKind::rendezvous) continue;
    const auto table = parse_table(parsed->carried, parsed->header.payload_bytes);
    if (!table) continue;
    std::size_t total = 0;
    for (std::size_t n = 0; n < table->pieces; ++n) total += table->piece(n).size;
    ASSERT_EQ(total, parsed->header.payload_bytes);
  }
}

TEST(RdmaRecords, ATableMustMakeUpThePayload) {
  std::vector<std::byte> table(table_head_bytes + 2 * RdmaRemoteBuffer::bytes + 8);
  store_le(table.data() + 4, std::uint32_t{2});
  write_piece(table.data() + 8, {.address = 4096, .key = 7, .size = 100});
  write_piece(table.data() + 24, {.address = 0, .key = 0, .size = 5});
  EXPECT_TRUE(parse_table(table, 105));
  EXPECT_FALSE(parse_table(table, 104));
  EXPECT_FALSE(parse_table(Bytes(table).first(table.size() - 8), 105)) << "without its literal";
  write_piece(table.data() + 8, {.address = UINT64_MAX, .key = 7, .size = 100});
  EXPECT_FALSE(parse_table(table, 105)) << "beyond the end of memory";
  store_le(table.data() + 4, std::uint32_t{0});
  EXPECT_FALSE(parse_table(table, 0));
  store_le(table.data() + 4, std::uint32_t{65});
  EXPECT_FALSE(parse_table(table, 105));
}

TEST(RdmaRecords, TheImmediate) {
  const Immediate all{.granted = Immediate::grant_max, .done = Immediate::done_max, .fin = true};
  const Immediate back = Immediate::decode(all.encode());
  EXPECT_EQ(back.granted, 4096U * 2 - 1);
  EXPECT_EQ(back.done, Immediate::done_max);
  EXPECT_TRUE(back.fin);
  EXPECT_EQ(Immediate{}.encode(), 0U);
}

TEST(RdmaCredits, DataLeavesTheReserve) {
  RdmaCredits credits(4, 4);
  EXPECT_TRUE(credits.may_send_data());
  credits.sending(100);
  credits.sending(100);
  EXPECT_FALSE(credits.may_send_data());
  EXPECT_TRUE(credits.may_send_control());
  EXPECT_TRUE(credits.received(2));
  EXPECT_TRUE(credits.may_send_data());
}

TEST(RdmaCredits, WhatCannotBeIsRefused) {
  RdmaCredits credits(4, 4);
  EXPECT_FALSE(credits.received(1)) << "more granted than used";
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(credits.received(0));
  EXPECT_FALSE(credits.received(0)) << "more used than posted";
}

TEST(RdmaCredits, GrantsAreDueAtHalfOrInNeed) {
  RdmaCredits half(8, 8);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(half.received(0));
    half.posted(true);
    EXPECT_FALSE(half.grant_due());
  }
  EXPECT_TRUE(half.received(0));
  half.posted(true);
  EXPECT_TRUE(half.grant_due());
  EXPECT_EQ(half.sending(100), 4U);
  EXPECT_FALSE(half.grant_due());

  RdmaCredits need(8, 8);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(need.received(0));
  EXPECT_TRUE(need.peer_is_short());
  need.posted(false);
  EXPECT_FALSE(need.grant_due()) << "one bare grant asks for none";
  need.posted(false);
  EXPECT_TRUE(need.grant_due());
}

TEST(RdmaSendSlots, IdsGrowByOneAndSomeAreSignalled) {
  SendSlots slots(16, 4);
  unsigned signalled = 0;
  for (std::uint64_t id = 1; id <= 16; ++id) {
    ASSERT_TRUE(slots.may_post_control());
    const SendSlots::Posted posted = slots.post(false);
    EXPECT_EQ(posted.id, id);
    signalled += posted.signalled;
  }
  EXPECT_GE(signalled, 4U);
  EXPECT_FALSE(slots.may_post_control());
  EXPECT_TRUE(slots.last_is_signalled()) << "else a full queue would wait for ever";
  EXPECT_TRUE(slots.complete(8));
  EXPECT_TRUE(slots.is_done(7));
  EXPECT_FALSE(slots.is_done(9));
  EXPECT_EQ(slots.free(), 8U);
  EXPECT_FALSE(slots.complete(8)) << "twice";
  EXPECT_FALSE(slots.complete(17)) << "never posted";
  EXPECT_TRUE(slots.complete(16));
  EXPECT_TRUE(slots.idle());
}

TEST(RdmaParameters, ComeBackAsTheyWere) {
  Gid gid;
  gid.bytes[15] = std::byte{9};
  const RdmaParameters sent{.ethernet = true,
                            .lid = 3,
                            .queue_pair = 0xabcdef,
                            .sequence = 0xffffff,
                            .mtu_bytes = 4096,
                            .chunk_bytes = 256 * 1024,
                            .receives = 8,
                            .reads = 16,
                            .gid = gid};
  const auto back = RdmaParameters::decode(sent.encode());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->encode(), sent.encode());
  const RdmaOffer offer{.type = GidType::roce_v2, .lid = 4, .gid = gid};
  const auto offered = RdmaOffer::decode(offer.encode());
  ASSERT_TRUE(offered);
  EXPECT_EQ(offered->encode(), offer.encode());
}

TEST(RdmaParameters, EachFieldHasItsBounds) {
  Gid gid;
  gid.bytes[15] = std::byte{9};
  const RdmaParameters good{.queue_pair = 1, .mtu_bytes = 1024, .chunk_bytes = 4096, .receives = 4, .gid = gid};
  const auto refused = [&](auto change) {
    RdmaParameters bad = good;
    change(bad);
    return !RdmaParameters::decode(bad.encode());
  };
  EXPECT_FALSE(refused([](RdmaParameters&) {}));
  EXPECT_TRUE(refused([](RdmaParameters& p) { p.queue_pair = 0; }));
  EXPECT_TRUE(refused([](RdmaParameters& p) { p.queue_pair = 1U << 24; }));
  EXPECT_TRUE(refused([](RdmaParameters& p) { p.sequence = 1U << 24; }));
  EXPECT_TRUE(refused([](RdmaParameters& p) { p.mtu_bytes = 1500; }));
  EXPECT_TRUE(refused([](RdmaParameters& p) { p.chunk_bytes = 4095; }));
  EXPECT_TRUE(refused([](RdmaParameters& p) { p.chunk_bytes = (16U << 20) + 4096; }));
  EXPECT_TRUE(refused([](RdmaParameters& p) { p.receives = 3; }));
  EXPECT_TRUE(refused([](RdmaParameters& p) { p.receives = 4097; }));
  EXPECT_TRUE(refused([](RdmaParameters& p) { p.reads = 256; }));
  EXPECT_TRUE(refused([](RdmaParameters& p) { p.gid = {}; }));
}

}  // namespace
}  // namespace hawser::transport::rdma
