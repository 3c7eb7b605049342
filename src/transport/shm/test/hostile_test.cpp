// A peer may write anything into the shared memory at any time. The connection ends, and nothing else happens.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "transport/shm/receiver.h"
#include "transport/shm/test/hostile_testing.h"

namespace hawser::transport::shm {
namespace {

void expect_protocol_violation(HostileClient& client, std::string_view what) {
  client.turns_until_closed();
  ASSERT_EQ(client.sink.closed.size(), 1U) << what;
  EXPECT_EQ(client.sink.closed[0].code, ErrorCode::protocol_error) << client.sink.closed[0].describe();
  EXPECT_EQ(client.sink.closed[0].scope, ErrorScope::connection);
  EXPECT_EQ(client.sink.closed[0].initiator, Initiator::peer);
  EXPECT_EQ(client.sink.count.load(), 0U) << what;
}

// The limit is exact for messages of every kind, and its error is that of all transports.
TEST(ShmHostile, MessagesAboveTheLimit) {
  constexpr std::size_t bytes_max = 1000;  // Head and payload.
  const auto closed_by = [&](RingRecordKind kind, std::uint32_t payload_bytes) {
    HostileClient client({}, bytes_max);
    EXPECT_TRUE(client.answer().has_value());
    client.open();
    client.put(0, {kind, 16, payload_bytes, 0});
    client.publish(2 * 16 + 992);
    client.turns_until_closed([&] { return client.sink.count.load() != 0; });
    return client.sink.closed.empty() ? std::string() : client.sink.closed[0].text;
  };
  for (const RingRecordKind kind :
       {RingRecordKind::whole, RingRecordKind::slab, RingRecordKind::read, RingRecordKind::long_begin}) {
    EXPECT_EQ(closed_by(kind, 985),
              "message of 1009 bytes exceeds message_bytes_max (1008 bytes): send less, or raise message_bytes_max on "
              "both sides")
        << static_cast<int>(kind);
  }
  EXPECT_EQ(closed_by(RingRecordKind::whole, 984), "");
}

TEST(ShmHostile, EveryProtocolViolationEndsTheConnection) {
  constexpr std::uint32_t huge = 0xffff'fff0;
  const struct {
    const char* what;
    RingRecord record;
    std::uint64_t tail;
  } cases[] = {
      {"a tail beyond the ring", {RingRecordKind::whole, 16, 0, 0}, 10 << 20},
      {"a tail before the head", {RingRecordKind::whole, 16, 0, 0}, ~std::uint64_t{15}},
      {"a tail within a record", {RingRecordKind::whole, 16, 0, 0}, 17},
      {"no kind", {static_cast<RingRecordKind>(0), 16, 0, 0}, 32},
      {"an unknown kind", {static_cast<RingRecordKind>(99), 16, 0, 0}, 32},
      {"a head beyond the tail", {RingRecordKind::whole, 17, 0, 0}, 32},
      {"a payload beyond the tail", {RingRecordKind::whole, 16, 1, 0}, 32},
      {"a huge head", {RingRecordKind::whole, huge, 0, 0}, 32},
      {"a huge payload", {RingRecordKind::whole, 0, huge, 0}, 32},
      {"both huge", {RingRecordKind::whole, huge, huge, 0}, 32},
      {"too long by parts", {RingRecordKind::long_begin, huge, huge, 0}, 16},
      {"nothing by parts", {RingRecordKind::long_begin, 0, 0, 0}, 16},
      {"a part of nothing", {RingRecordKind::long_part, 16, 0, 0}, 32},
      {"a slab's head beyond the tail", {RingRecordKind::slab, 17, 100, 0}, 32},
      {"no payload in the slab", {RingRecordKind::slab, 16, 0, 0}, 32},
      {"a region that is not", {RingRecordKind::slab, 16, 100, chunks_max}, 32},
      {"a region far beyond", {RingRecordKind::slab, 16, 100, huge}, 32},
      {"a payload beyond the slab", {RingRecordKind::slab, 16, 100'000, chunks_max - 1}, 32},
      {"no payload to read", {RingRecordKind::read, 16, 0, 0}, 32},
      {"a read slot that is not", {RingRecordKind::read, 16, 100, reads_max}, 32},
      {"a read slot of no pieces", {RingRecordKind::read, 16, 100, 0}, 32},
  };
  for (const auto& one : cases) {
    HostileClient client;
    ASSERT_TRUE(client.answer().has_value());
    client.open();
    client.put(0, one.record);
    client.publish(one.tail);
    expect_protocol_violation(client, one.what);
  }
}

TEST(ShmHostile, PayloadsToBeReadAreChecked) {
  const auto offer = [](HostileClient& client, std::uint32_t count, std::uint64_t address, std::uint64_t bytes,
                        std::uint32_t state) {
    ReadSlot& slot = client.control().reads[client_side][0];
    slot.count.store(count);
    for (ReadSlot::Part& piece : slot.pieces) {
      piece.address.store(address);
      piece.bytes.store(bytes);
    }
    slot.moved.store(address);
    slot.state.store(state);
    client.put(0, {RingRecordKind::read, 16, 1000, 0});
    client.publish(32);
  };
  const std::uint64_t nowhere = 0x10;
  const std::vector<std::byte> memory(1000);
  const auto here = reinterpret_cast<std::uintptr_t>(memory.data());
  const struct {
    std::uint32_t count;
    std::uint64_t address;
    std::uint64_t bytes;
    std::uint32_t state;
  } cases[] = {
      {0, here, 1000, read_offered},
      {1, here, 999, read_offered},
      {1, here, 1001, read_offered},
      {2, here, 1000, read_offered},
      {4, here, 250, read_offered},
      {~0U, here, 0, read_offered},
      {1, here, ~std::uint64_t{0}, read_offered},
      {3, here, ~std::uint64_t{0} / 2, read_offered},
      {1, nowhere, 1000, read_offered},
      {1, nowhere, 1000, read_moved},
      {1, here, 1000, read_done},
      {1, here, 1000, read_wanted},
      {1, here, 1000, read_filled},
      {1, here, 1000, 77},
  };
  for (const auto& one : cases) {
    HostileClient client;
    ASSERT_TRUE(client.answer().has_value());
    client.open();
    offer(client, one.count, one.address, one.bytes, one.state);
    expect_protocol_violation(client, "a payload to be read");
  }
}

TEST(ShmHostile, ARegionInUseIsNotGivenOutAgain) {
  HostileClient client;
  ASSERT_TRUE(client.answer().has_value());
  client.open();
  client.sink.keep = true;
  client.put(0, {RingRecordKind::slab, 16, 100'000, 2});
  client.put(32, {RingRecordKind::slab, 16, 50, 2});
  client.publish(64);
  client.turns_until_closed();
  ASSERT_EQ(client.sink.closed.size(), 1U);
  EXPECT_EQ(client.sink.count.load(), 1U);
  EXPECT_EQ(client.sink.closed[0].code, ErrorCode::protocol_error);
}

TEST(ShmHostile, AReaderThatReadWhatWasNotSent) {
  HostileClient client;
  ASSERT_TRUE(client.answer().has_value());
  client.open();
  client.control().rings[server_side].head.store(1 << 20);
  // The head is not read until the ring is full.
  client.loop.on([&] {
    for (int i = 0; i < 100; ++i) {
      if (std::byte* const to = client.connection->reserve(10'000); to != nullptr) {
        std::memset(to, 0, 10'000);
        client.connection->commit(10'000, {}, nullptr);
      }
    }
  });
  expect_protocol_violation(client, "a head beyond the tail");
}

// The memory contains random bytes, which change while they are read.
TEST(ShmHostile, RandomContents) {
  std::size_t delivered = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    Random random(seed);
    HostileClient client({.ring_bytes = 64 * 1024, .slab_bytes = 512 * 1024, .direct_read_bytes_min = 10'000}, 100'000);
    ASSERT_TRUE(client.answer().has_value());
    client.open();
    std::vector<std::byte> memory(100'000);
    std::size_t sum = 0;
    client.sink.keep = seed % 3 == 0;
    client.sink.where = [&](Bytes, std::size_t bytes) -> ReceiveBuffer {
      EXPECT_LE(bytes, 100'000U);
      switch (random.below(3)) {
        case 0: return {ReceiveBuffer::Kind::given, memory};
        case 1: return {ReceiveBuffer::Kind::discard, {}};
        default: return {};
      }
    };
    client.sink.on_each = [&](const Message& message) {
      EXPECT_LE(message.head.size() + message.payload.size(), 100'000U);
      for (const std::byte byte : message.head) sum += static_cast<std::size_t>(byte);
      for (const std::byte byte : message.payload) sum += static_cast<std::size_t>(byte);
    };
    std::uint64_t tail = 0;
    for (int step = 0; step < 20 && client.sink.closed.empty(); ++step) {
      for (std::uint64_t n = random.below(30); n != 0; --n) {
        if (seed % 4 == 0) {
          // Writes any value to any place.
          const std::uint64_t word = random.next() >> random.below(64);
          std::memcpy(client.ring() + random.below(64 * 1024 - 8), &word, sizeof word);
          if (random.chance(0.05)) {
            const std::size_t at = random.below(sizeof(Control) - 8);
            std::memcpy(reinterpret_cast<std::byte*>(&client.control()) + at, &word, sizeof word);
          }
          tail += random.below(200) * 16;
          continue;
        }
        // Writes records that are valid, or nearly so.
        RingRecord record{static_cast<RingRecordKind>(1 + random.below(random.chance(0.02) ? 8 : 5)),
                          static_cast<std::uint32_t>(random.below(300)), static_cast<std::uint32_t>(random.below(3000)),
                          static_cast<std::uint32_t>(random.below(40))};
        if (record.kind == RingRecordKind::long_part) record.payload_bytes = 0;
        if (record.kind == RingRecordKind::read) {
          ReadSlot& slot = client.control().reads[client_side][record.where];
          slot.count.store(1);
          slot.pieces[0].address.store(reinterpret_cast<std::uintptr_t>(memory.data()));
          slot.pieces[0].bytes.store(record.payload_bytes);
          slot.state.store(static_cast<std::uint32_t>(random.below(random.chance(0.1) ? 4 : 2)));
          slot.moved.store(reinterpret_cast<std::uintptr_t>(memory.data()));
        }
        if (random.chance(0.01)) record.head_bytes = static_cast<std::uint32_t>(random.next());
        if (random.chance(0.01)) record.payload_bytes = static_cast<std::uint32_t>(random.next());
        std::memcpy(client.ring() + tail % (64 * 1024), &record, sizeof record);
        const bool data = record.kind != RingRecordKind::long_begin;
        tail += 16 + (data ? aligned(record.head_bytes & 0xffffU) : 0) +
                (record.kind == RingRecordKind::whole ? aligned(record.payload_bytes & 0xffffU) : 0);
      }
      client.publish(random.chance(0.01) ? random.next() : tail);
      client.turns(1);
    }
    delivered += client.sink.count.load();
    for (const Error& error : client.sink.closed) EXPECT_FALSE(error.text.empty());
    client.sink.kept.clear();
  }
  EXPECT_GT(delivered, 100U) << "most of it must be true for the rest to be tried";
}

// ---- Before the connection ----

TEST(ShmHostile, OnlyWhoComesWithTheSecretIsConnectedTo) {
  HostileClient client;
  EXPECT_FALSE(client.answer_only().has_value()) << "nobody has come";
  Token wrong = client.selection.secret;
  wrong[15] ^= std::byte{1};
  const int memory = client.memory->fd();
  const Doorbell stranger = std::move(*meet(client.selection.socket, wrong, memory));
  EXPECT_FALSE(client.answer_only().has_value()) << "another secret";
  EXPECT_FALSE(meet(wrong, client.selection.secret, memory).has_value()) << "another socket";
  EXPECT_TRUE(client.answer().has_value());
  HostileClient other;
  EXPECT_FALSE(meet(client.selection.secret, client.selection.secret, memory).has_value());
}

// Any process of the network namespace can see the socket's name.
TEST(ShmHostile, StrangersAtTheSocketAreNoPeers) {
  HostileClient client;
  std::vector<Doorbell> strangers;
  for (int i = 0; i < 40; ++i) {
    Token secret = client.selection.secret;
    secret[static_cast<std::size_t>(i) % 16] ^= std::byte{1};
    strangers.push_back(std::move(*meet(client.selection.socket, secret, client.memory->fd())));
  }
  EXPECT_TRUE(client.answer().has_value());
}

TEST(ShmHostile, OnlyMemoryIsTaken) {
  const auto refusal = [](int fd) {
    HostileClient client;
    client.bell.emplace(std::move(*meet(client.selection.socket, client.selection.secret, fd)));
    const Result<void> answered = client.answer_only();
    return answered ? std::string() : answered.error().text;
  };
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const Descriptor reading(ends[0]);
  const Descriptor writing(ends[1]);
  refusal(reading.get());
  const std::size_t before = descriptors();
  EXPECT_NE(refusal(reading.get()).find("not shared memory"), std::string::npos);
  EXPECT_NE(refusal(writing.get()).find("not shared memory"), std::string::npos);
  // A helper thread closes the passed descriptors.
  for (int i = 0; i < 10'000 && descriptors() > before; ++i) usleep(1000);
  EXPECT_LE(descriptors(), before);
}

TEST(ShmHostile, MemoryThatCouldBeCutIsRefused) {
  const Sizes sizes{64 * 1024, 0};
  const auto adopt = [&](Descriptor file) { return SharedMemory::adopt(file, sizes, false); };
  const auto make = [&](std::size_t bytes, int seals) {
    Descriptor file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    if (seals != 0) {
      EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, seals), 0);
    }
    return file;
  };
  constexpr int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_TRUE(adopt(make(sizes.total(), all)).has_value());
  for (const int seals : {0, F_SEAL_GROW | F_SEAL_SEAL, F_SEAL_SHRINK | F_SEAL_SEAL, F_SEAL_SHRINK | F_SEAL_GROW}) {
    EXPECT_FALSE(adopt(make(sizes.total(), seals)).has_value());
  }
  EXPECT_FALSE(adopt(make(sizes.total(), all | F_SEAL_WRITE)).has_value()) << "it can't be written";
  EXPECT_FALSE(adopt(make(sizes.total() - 1, all)).has_value());
  EXPECT_FALSE(adopt(make(sizes.total() + system_page_bytes(), all)).has_value());
  EXPECT_FALSE(adopt(make(0, all)).has_value());
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  EXPECT_FALSE(adopt(Descriptor(ends[0])).has_value());
  EXPECT_FALSE(adopt(Descriptor(ends[1])).has_value());
}

}  // namespace
}  // namespace hawser::transport::shm
