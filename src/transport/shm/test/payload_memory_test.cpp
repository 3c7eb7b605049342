// Payloads that are written to the slab in place.
#include "transport/common/payload_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "transport/shm/test/hostile_testing.h"

namespace hawser::transport::shm {
namespace {

constexpr std::size_t payload_bytes = 300'000;

class ShmPayloadMemory : public testing::Test {
 protected:
  ShmPayloadMemory() {
    EXPECT_TRUE(peer.answer());
    peer.open();
  }
  ~ShmPayloadMemory() override { peer.bell.reset(); }

  PayloadMemory& payloads() { return *dynamic_cast<PayloadMemory*>(peer.connection.get()); }
  std::byte* reserve(std::size_t bytes) {
    EXPECT_NE(peer.connection->reserve(16), nullptr);
    return payloads().reserve_payload(bytes);
  }
  void commit(const std::byte* payload, std::size_t bytes) {
    const ConstBuffer piece{payload, bytes};
    peer.connection->commit(16, std::span(&piece, 1), nullptr);
    peer.connection->flush();
  }
  // The record of the message that begins at `at` in the ring.
  RingRecord record(std::size_t at) {
    RingRecord read{};
    std::memcpy(&read, peer.memory->ring(server_side) + at, sizeof read);
    return read;
  }
  const std::byte* region(std::uint32_t number) {
    return peer.memory->slab(server_side) + number * peer.memory->sizes().chunk();
  }
  static constexpr std::size_t slab_bytes = std::size_t{4} << 20;
  HostileClient peer{{.slab_bytes = slab_bytes}};
};

TEST_F(ShmPayloadMemory, ReachesThePeerWithoutACopy) {
  peer.loop.on([&] {
    std::byte* const place = reserve(payload_bytes);
    ASSERT_NE(place, nullptr);
    std::fill_n(place, payload_bytes, std::byte{7});
    commit(place, payload_bytes);
    const RingRecord sent = record(0);
    EXPECT_EQ(sent.kind, RingRecordKind::slab);
    EXPECT_EQ(sent.payload_bytes, payload_bytes);
    EXPECT_TRUE(std::all_of(region(sent.where), region(sent.where) + payload_bytes,
                            [](std::byte one) { return one == std::byte{7}; }));
    // It is the same memory, and not a copy.
    place[5] = std::byte{8};
    EXPECT_EQ(region(sent.where)[5], std::byte{8});
    // The region is the peer's until it returns it.
    ASSERT_NE(reserve(payload_bytes), place);
  });
}

TEST_F(ShmPayloadMemory, IsUsedAgainIfItWasNotCommitted) {
  peer.loop.on([&] {
    for (int i = 0; i < 1000; ++i) ASSERT_NE(reserve(slab_bytes / 2 + 1), nullptr) << i;
    // Another payload than the one that the memory was reserved for.
    const std::string other(payload_bytes, 'x');
    ASSERT_NE(reserve(payload_bytes), nullptr);
    commit(as_bytes(other).data(), other.size());
    const RingRecord sent = record(0);
    ASSERT_EQ(sent.kind, RingRecordKind::slab);
    EXPECT_EQ(std::memcmp(region(sent.where), other.data(), other.size()), 0);
    for (int i = 0; i < 100; ++i) ASSERT_NE(reserve(slab_bytes / 2), nullptr) << i;
  });
}

TEST_F(ShmPayloadMemory, IsAbsentForShortPayloadsAndInAFullSlab) {
  peer.loop.on([&] {
    EXPECT_EQ(reserve(1), nullptr);
    EXPECT_EQ(reserve(slab_bytes + 1), nullptr);
    std::byte* const all = reserve(slab_bytes);
    ASSERT_NE(all, nullptr);
    commit(all, slab_bytes);
    EXPECT_EQ(reserve(payload_bytes), nullptr);
    // The peer returns it.
    peer.control().returned[server_side][record(0).where].store(1);
    EXPECT_NE(reserve(payload_bytes), nullptr);
    peer.connection->abort();
    EXPECT_EQ(payloads().reserve_payload(payload_bytes), nullptr);
  });
}

}  // namespace
}  // namespace hawser::transport::shm
