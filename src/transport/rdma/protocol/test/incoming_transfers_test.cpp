#include "transport/rdma/protocol/incoming_transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/rdma/device/test/fake_device_testing.h"

namespace hawser::transport::rdma {
namespace {

constexpr std::size_t payload_bytes = 10'000;

// Reads payloads from its own memory, over a queue pair that is connected to itself.
struct IncomingTransfersTest : testing::Test {
  void SetUp() override {
    pair.peer = &pair;
    for (std::size_t i = 0; i < payload_bytes; ++i) source.memory.data[i] = static_cast<std::byte>(i * 7 + i / 256);
    const auto acquire = [&](std::size_t bytes) {
      return pool->acquire(bytes, MemoryPool::Use::connection).value_or(RegisteredMemory());
    };
    sender.emplace(queue, pool, acquire(4096), acquire(ControlSlots::bytes), SenderOptions{.chunk_bytes = 4096});
    transfers.emplace(queue, *sender, pool, acquire(4096),
                      IncomingTransferOptions{
                          .read_bytes_max = 4000, .reads_max = 2, .ahead_bytes_max = 15'000, .staging_bytes = 4096});
  }
  void TearDown() override {
    transfers.reset();
    sender.reset();
    source.block->release();
    EXPECT_EQ(pool->counters().used_bytes, 0U) << "memory did not return to the pool";
    EXPECT_EQ(pool->ahead_bytes(), 0U);
  }
  bool begin(PayloadBuffer payload, bool ahead) {
    entries.resize(RdmaRemoteBuffer::bytes);
    write_piece(entries.data(), {.address = reinterpret_cast<std::uintptr_t>(source.memory.data),
                                 .key = source.memory.remote_key,
                                 .size = payload_bytes});
    return transfers->begin({.transfer = ++last_id, .pieces = 1, .entries = entries}, std::move(payload), ahead);
  }
  static PayloadBuffer given(std::byte* memory) {
    PayloadBuffer payload(payload_bytes, nullptr);
    payload.select({ReceiveBuffer::Kind::given, {memory, payload_bytes}});
    return payload;
  }
  static PayloadBuffer discarded() {
    PayloadBuffer payload(payload_bytes, nullptr);
    payload.discard();
    return payload;
  }
  // Executes the requests that were posted. Returns their number.
  std::size_t execute() {
    queue.submit();
    std::size_t count = 0;
    for (; pair.transmit(); ++count) pair.acknowledge();
    while (const auto completion = pair.poll_sent()) EXPECT_TRUE(queue.slots.complete(completion->id));
    return count;
  }

  const std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  const std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>(
      device, MemoryPoolOptions{.bytes_max = std::size_t{1} << 20, .arena_bytes = 64 * 1024, .huge_pages = false});
  const MemoryPool::PayloadBlock source = pool->acquire_block(payload_bytes);
  FakePair pair{*device, 0, 32};
  WorkQueue queue{pair, RdmaCredits(8, 8), SendSlots(32, 1)};
  std::optional<RdmaSender> sender;
  std::optional<IncomingTransfers> transfers;
  std::vector<std::byte> entries;
  std::uint32_t last_id = 0;
};

TEST_F(IncomingTransfersTest, APayloadIsReadInParts) {
  ASSERT_TRUE(begin(PayloadBuffer(payload_bytes, nullptr), false));
  transfers->post_reads();
  EXPECT_EQ(execute(), 2U) << "reads_max";
  const IncomingTransfers::Progress first = transfers->take_completed();
  EXPECT_EQ(first.bytes, 8000U);
  EXPECT_FALSE(first.completed);
  EXPECT_FALSE(transfers->front().complete());
  transfers->post_reads();
  EXPECT_EQ(execute(), 1U);
  const IncomingTransfers::Progress last = transfers->take_completed();
  EXPECT_EQ(last.bytes, 2000U);
  EXPECT_TRUE(last.completed);
  EXPECT_EQ(std::memcmp(transfers->front().payload.data(), source.memory.data, payload_bytes), 0);
  transfers->pop_front();
  EXPECT_TRUE(transfers->empty());
}

TEST_F(IncomingTransfersTest, APayloadForOrdinaryMemoryIsReadThroughStaging) {
  std::vector<std::byte> memory(payload_bytes);
  ASSERT_TRUE(begin(given(memory.data()), false));
  EXPECT_EQ(transfers->front().direct.data, nullptr);
  for (int i = 0; i < 10 && !transfers->front().complete(); ++i) {
    transfers->post_reads();
    execute();
    transfers->take_completed();
  }
  ASSERT_TRUE(transfers->front().complete());
  EXPECT_EQ(std::memcmp(memory.data(), source.memory.data, payload_bytes), 0);
  transfers->pop_front();
}

TEST_F(IncomingTransfersTest, ADiscardedPayloadIsCompleteWithoutARead) {
  ASSERT_TRUE(begin(discarded(), false));
  EXPECT_TRUE(transfers->front().complete());
  transfers->post_reads();
  EXPECT_EQ(execute(), 0U);
  sender->flush();
  queue.submit();
  ASSERT_EQ(pair.sends.size(), 1U) << "the peer is notified, so that it can free its memory";
  EXPECT_EQ(Immediate::decode(pair.sends.front().request.immediate).done, 1U);
  transfers->pop_front();
}

TEST_F(IncomingTransfersTest, ATransferThatIsCutShortEndsWithTheReadsThatWerePosted) {
  ASSERT_TRUE(begin(PayloadBuffer(payload_bytes, nullptr), false));
  transfers->post_reads();
  transfers->front().payload.discard();
  transfers->cut_short(transfers->front());
  EXPECT_FALSE(transfers->front().complete()) << "the device still writes";
  EXPECT_FALSE(transfers->take_cut_short()) << "a completion will report it";
  EXPECT_EQ(execute(), 2U);
  EXPECT_TRUE(transfers->take_completed().completed);
  transfers->post_reads();
  EXPECT_EQ(execute(), 0U) << "the rest is not read";
  transfers->pop_front();
}

TEST_F(IncomingTransfersTest, ATransferThatIsCutShortBeforeItsReadsIsReportedOnce) {
  ASSERT_TRUE(begin(PayloadBuffer(payload_bytes, nullptr), false));
  transfers->cut_short(transfers->front());
  EXPECT_TRUE(transfers->front().complete());
  EXPECT_TRUE(transfers->take_cut_short());
  EXPECT_FALSE(transfers->take_cut_short());
  transfers->pop_front();
}

TEST_F(IncomingTransfersTest, LittleIsReadAhead) {
  ASSERT_TRUE(begin(PayloadBuffer(payload_bytes, nullptr), true));
  EXPECT_EQ(transfers->ahead_bytes(), payload_bytes);
  EXPECT_EQ(pool->ahead_bytes(), payload_bytes);
  EXPECT_FALSE(begin(PayloadBuffer(payload_bytes, nullptr), true)) << "ahead_bytes_max";
  EXPECT_EQ(transfers->size(), 1U);
  EXPECT_TRUE(begin(PayloadBuffer(payload_bytes, nullptr), false)) << "its turn has come";
  transfers->cut_short(transfers->front());
  transfers->pop_front();
  EXPECT_EQ(transfers->ahead_bytes(), 0U);
  EXPECT_EQ(pool->ahead_bytes(), 0U);
}

}  // namespace
}  // namespace hawser::transport::rdma
