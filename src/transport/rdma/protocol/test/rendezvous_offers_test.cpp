#include "transport/rdma/protocol/rendezvous_offers.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/rdma/device/test/fake_device_testing.h"

namespace hawser::transport::rdma {
namespace {

struct OffersTest : testing::Test, SendCompletion {
  void on_send_complete() noexcept override { ++notified; }
  MemoryPool::PayloadBlock registered(std::size_t bytes) const {
    const MemoryPool::PayloadBlock block = pool->acquire_block(bytes);
    EXPECT_NE(block.block, nullptr);
    return block;
  }

  const std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  const std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>(
      device, MemoryPoolOptions{.bytes_max = std::size_t{1} << 20, .arena_bytes = 64 * 1024, .huge_pages = false});
  RendezvousOffers offers{pool, 512, 2};
  const std::array<std::byte, 5> head{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
  int notified = 0;
};

TEST_F(OffersTest, ARecordNamesLongPiecesAndCarriesShortOnes) {
  const MemoryPool::PayloadBlock block = registered(1000);
  const std::array<std::byte, 3> literal{std::byte{7}, std::byte{8}, std::byte{9}};
  const std::array<ConstBuffer, 3> payload{
      {{literal.data(), literal.size()}, {block.memory.data, 0}, {block.memory.data, 1000}}};
  const Buffer record = offers.offer(head, payload, 1003, this);
  block.block->release();
  ASSERT_FALSE(record.empty());
  EXPECT_EQ(offers.open(), 1U);

  const auto parsed = parse_record(record.bytes());
  ASSERT_TRUE(parsed) << parsed.error();
  EXPECT_EQ(parsed->header.kind, RdmaRecordKind::rendezvous);
  EXPECT_EQ(std::memcmp(parsed->head.data(), head.data(), head.size()), 0);
  const auto table = parse_table(parsed->carried, parsed->header.payload_bytes);
  ASSERT_TRUE(table) << table.error();
  ASSERT_EQ(table->pieces, 2U);
  EXPECT_EQ(table->piece(0).address, 0U);
  EXPECT_EQ(std::memcmp(table->literals.data(), literal.data(), literal.size()), 0);
  EXPECT_EQ(table->piece(1).address, reinterpret_cast<std::uintptr_t>(block.memory.data));
  EXPECT_EQ(table->piece(1).key, block.memory.remote_key);

  EXPECT_NE(pool->counters().used_bytes, 0U) << "the peer may read the payload";
  EXPECT_TRUE(offers.end(table->transfer));
  EXPECT_EQ(notified, 1);
  EXPECT_EQ(pool->counters().used_bytes, 0U);
  EXPECT_FALSE(offers.end(table->transfer));
}

TEST_F(OffersTest, APayloadOutsideOfRegisteredMemoryIsNotOffered) {
  const MemoryPool::PayloadBlock block = registered(1000);
  const std::vector<std::byte> elsewhere(1000);
  const std::array<ConstBuffer, 2> payload{{{block.memory.data, 1000}, {elsewhere.data(), elsewhere.size()}}};
  EXPECT_TRUE(offers.offer(head, payload, 2000, this).empty());
  EXPECT_EQ(offers.open(), 0U);
  EXPECT_TRUE(block.block->unique()) << "the reference of the piece that was found is left";
  block.block->release();
  EXPECT_EQ(notified, 0);

  const Buffer record = offers.offer_copy(head, payload, 2000);
  EXPECT_FALSE(record.empty());
  EXPECT_EQ(offers.open(), 1U);
  offers.release_owners();
  EXPECT_EQ(notified, 0) << "a copy has no owner";
}

TEST_F(OffersTest, ARecordIsLimited) {
  const MemoryPool::PayloadBlock block = registered(1000);
  const ConstBuffer payload{block.memory.data, 1000};
  const std::vector<std::byte> long_head(512);
  EXPECT_TRUE(offers.offer(long_head, std::span(&payload, 1), 1000, this).empty());
  EXPECT_TRUE(block.block->unique());
  block.block->release();
}

TEST_F(OffersTest, OffersAndCopiesAreLimited) {
  const std::vector<std::byte> elsewhere(1000);
  const ConstBuffer payload{elsewhere.data(), elsewhere.size()};
  EXPECT_TRUE(offers.may_copy(RendezvousOffers::copies_bytes_max));
  EXPECT_FALSE(offers.offer_copy(head, std::span(&payload, 1), 1000).empty());
  EXPECT_FALSE(offers.may_copy(RendezvousOffers::copies_bytes_max));
  EXPECT_TRUE(offers.may_copy(RendezvousOffers::copies_bytes_max - 1000));
  EXPECT_FALSE(offers.full());
  EXPECT_FALSE(offers.offer_copy(head, std::span(&payload, 1), 1000).empty());
  EXPECT_TRUE(offers.full());
}

}  // namespace
}  // namespace hawser::transport::rdma
