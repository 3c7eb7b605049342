// ShmOptions::copy_received.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "transport/shm/test/hostile_testing.h"

namespace hawser::transport::shm {
namespace {

// The receiver does not see what the peer changes after the delivery.
TEST(ShmCopies, NothingIsDeliveredFromSharedMemory) {
  for (const bool copies : {false, true}) {
    struct Changing final : MessageSink {
      void on_message(const Message& message) override {
        std::memset(ring, 9, 4096);
        std::memset(slab, 9, 100'000);
        heads.emplace_back(as_text(message.head));
        payloads.emplace_back(as_text(message.payload));
      }
      ReceiveBuffer select_receive_buffer(Bytes, std::size_t) override { return {}; }
      void on_drained() override {}
      void on_closed(const Error&) override {}
      std::byte* ring = nullptr;
      std::byte* slab = nullptr;
      std::vector<std::string> heads;
      std::vector<std::string> payloads;
    } changing;
    // The message is there when the server begins to receive.
    for (const RingRecordKind kind : {RingRecordKind::whole, RingRecordKind::slab}) {
      const std::uint32_t bytes = kind == RingRecordKind::whole ? 16 : 100'000;
      HostileClient one({.copy_received = copies});
      ASSERT_TRUE(one.answer());
      changing.ring = one.ring();
      changing.slab = one.memory->slab(client_side);
      one.put(0, {kind, 16, bytes, 0});
      std::memset(one.ring() + sizeof(RingRecord), 'h', 16);
      std::memset(one.ring() + sizeof(RingRecord) + 16, 'p', 16);
      std::memset(one.memory->slab(client_side), 'p', bytes);
      one.publish(kind == RingRecordKind::whole ? 48 : 32);
      one.open_with(changing);
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      const std::size_t wanted = kind == RingRecordKind::whole ? 1 : 2;
      while (one.loop.on([&] { return changing.heads.size(); }) != wanted && std::chrono::steady_clock::now() < end) {
        one.turns();
      }
      one.loop.on([&] { one.connection->abort(); });
      ASSERT_EQ(changing.heads.size(), wanted);
      EXPECT_EQ(changing.heads.back() == std::string(16, 'h'), copies);
      EXPECT_EQ(changing.payloads.back() == std::string(bytes, 'p'), copies);
      if (kind == RingRecordKind::slab) {
        EXPECT_EQ(one.control().returned[client_side][0].load(), 1U);
      }
      one.bell.reset();
    }
  }
}

}  // namespace
}  // namespace hawser::transport::shm
