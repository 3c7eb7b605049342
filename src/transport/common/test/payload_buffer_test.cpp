#include "transport/common/payload_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace hawser::transport {
namespace {

using hawser::detail::ReceiveAccount;
using hawser::detail::ReceiveBudget;

constexpr std::size_t kibibyte = 1024;

ReceiveBuffer given(std::vector<std::byte>& memory) { return {ReceiveBuffer::Kind::given, MutableBytes(memory)}; }

Message completed(PayloadBuffer& payload) {
  Message message;
  payload.complete(message);
  return message;
}

TEST(ArrivingCharge, SeveralShareOneAccount) {
  ReceiveBudget budget(64 * kibibyte, 64 * kibibyte);
  ReceiveAccount account(&budget);
  {
    ArrivingCharge one(&account);
    ArrivingCharge two(&account);
    EXPECT_TRUE(one.set(20 * kibibyte));
    EXPECT_TRUE(two.set(30 * kibibyte));
    EXPECT_EQ(account.arriving(), 50 * kibibyte);
    EXPECT_FALSE(one.set(40 * kibibyte));
    EXPECT_EQ(one.bytes(), 20 * kibibyte) << "a refusal changes nothing";
    EXPECT_TRUE(one.set(1 * kibibyte));
    EXPECT_EQ(budget.used(), 31 * kibibyte);
    ArrivingCharge moved = std::move(two);
    EXPECT_EQ(budget.used(), 31 * kibibyte);
    moved.reset();
    EXPECT_EQ(budget.used(), 1 * kibibyte);
    EXPECT_TRUE(moved.set(1000 * kibibyte)) << "without an account nothing is refused";
  }
  EXPECT_EQ(account.arriving(), 0U);
  EXPECT_EQ(budget.used(), 0U);
}

TEST(PayloadBuffer, MemoryOfTheTransportIsChargedUntilItIsDelivered) {
  ReceiveBudget budget(1024 * kibibyte, 1024 * kibibyte);
  ReceiveAccount account(&budget);
  PayloadBuffer payload(100 * kibibyte, &account);
  payload.select({});
  EXPECT_EQ(budget.used(), 0U) << "nothing is allocated yet";
  ASSERT_TRUE(payload.grow(1, 0));
  EXPECT_EQ(payload.room(), 100 * kibibyte) << "with plenty of memory it is allocated at once";
  EXPECT_EQ(budget.used(), payload.own().block()->size());
  EXPECT_GE(budget.used(), 100 * kibibyte);
  std::memset(payload.data(), 7, 100 * kibibyte);
  const Message message = completed(payload);
  EXPECT_EQ(budget.used(), 0U) << "whoever keeps it pays from now on";
  EXPECT_EQ(message.payload.size(), 100 * kibibyte);
  EXPECT_EQ(message.payload_block, payload.own().block());
  EXPECT_EQ(message.payload[99 * kibibyte], std::byte{7});
  EXPECT_FALSE(message.discarded);
}

TEST(PayloadBuffer, WithoutPlentyOfMemoryItGrowsInSteps) {
  ReceiveBudget budget(200 * kibibyte, 200 * kibibyte);
  ReceiveAccount account(&budget);
  constexpr std::size_t size = 128 * kibibyte;
  PayloadBuffer payload(size, &account);
  std::string sent;
  for (std::size_t i = 0; i < size; ++i) sent += static_cast<char>(i * 31 >> 4);
  std::size_t done = 0;
  std::vector<std::size_t> rooms;
  while (done < size) {
    ASSERT_TRUE(payload.grow(done + 1, done));
    ASSERT_GT(payload.room(), done);
    if (rooms.empty() || rooms.back() != payload.room()) rooms.push_back(payload.room());
    const std::size_t part = std::min(payload.room() - done, std::size_t{999});
    std::memcpy(payload.data() + done, sent.data() + done, part);
    done += part;
  }
  EXPECT_LE(rooms.front(), PayloadBuffer::first_step_bytes);
  for (std::size_t i = 1; i < rooms.size(); ++i) {
    EXPECT_LE(rooms[i], PayloadBuffer::step_factor * rooms[i - 1] + PayloadBuffer::step_factor);
  }
  EXPECT_EQ(rooms.back(), size);
  EXPECT_EQ(as_text(completed(payload).payload), sent);
  EXPECT_EQ(budget.used(), 0U);
}

TEST(PayloadBuffer, ARefusalChangesNothing) {
  ReceiveBudget budget(64 * kibibyte, 64 * kibibyte);
  ReceiveAccount account(&budget);
  account.acquire_always(40 * kibibyte);
  PayloadBuffer payload(100 * kibibyte, &account);
  ASSERT_TRUE(payload.grow(1, 0));
  const std::size_t room = payload.room();
  const std::byte* const data = payload.data();
  const std::size_t used = budget.used();
  EXPECT_FALSE(payload.allocate());
  EXPECT_FALSE(payload.grow(100 * kibibyte, room));
  EXPECT_EQ(payload.room(), room);
  EXPECT_EQ(payload.data(), data);
  EXPECT_EQ(budget.used(), used);
  payload.discard();
  EXPECT_EQ(budget.used(), 40 * kibibyte);
  EXPECT_TRUE(payload.grow(100 * kibibyte, room)) << "a discarded payload needs no room";
  EXPECT_EQ(payload.data(), nullptr);
  const Message message = completed(payload);
  EXPECT_TRUE(message.discarded);
  EXPECT_TRUE(message.payload.empty());
  EXPECT_EQ(message.payload_block, nullptr);
  account.release(40 * kibibyte);
}

TEST(PayloadBuffer, MemoryOfTheSinkIsNotCharged) {
  ReceiveBudget budget(8 * kibibyte, 8 * kibibyte);
  ReceiveAccount account(&budget);
  std::vector<std::byte> memory(100 * kibibyte);
  PayloadBuffer payload(memory.size(), &account);
  payload.select(given(memory));
  EXPECT_TRUE(payload.given());
  EXPECT_TRUE(payload.grow(memory.size(), 0));
  EXPECT_EQ(payload.data(), memory.data());
  EXPECT_EQ(budget.used(), 0U);
  const Message message = completed(payload);
  EXPECT_EQ(message.payload.data(), memory.data());
  EXPECT_EQ(message.payload_block, nullptr) << "the sink keeps it";
}

TEST(PayloadBuffer, WhatIsReceivedBeforeTheSinkIsAskedIsCopiedInTheEnd) {
  for (const bool early : {true, false}) {
    ReceiveBudget budget(1024 * kibibyte, 1024 * kibibyte);
    ReceiveAccount account(&budget);
    std::vector<std::byte> memory(10 * kibibyte);
    PayloadBuffer payload(memory.size(), &account);
    // The transport may also allocate after the sink has selected memory, if it cannot receive into that memory.
    if (!early) payload.select(given(memory));
    ASSERT_TRUE(payload.allocate());
    if (early) payload.select(given(memory));
    EXPECT_NE(payload.data(), memory.data());
    EXPECT_FALSE(payload.given());
    EXPECT_TRUE(payload.revokes(memory.data()));
    EXPECT_NE(budget.used(), 0U);
    std::memset(payload.data(), 9, memory.size());
    const Message message = completed(payload);
    EXPECT_EQ(message.payload.data(), memory.data());
    EXPECT_EQ(message.payload_block, nullptr);
    EXPECT_EQ(memory.back(), std::byte{9});
    EXPECT_EQ(budget.used(), 0U);
  }
}

TEST(PayloadBuffer, RevokedMemoryIsNotTouched) {
  for (const bool early : {true, false}) {
    std::vector<std::byte> memory(10 * kibibyte);
    PayloadBuffer payload(memory.size(), nullptr);
    if (early) {
      ASSERT_TRUE(payload.allocate());
    }
    payload.select(given(memory));
    payload.revoke(memory.data() + 1);
    EXPECT_FALSE(payload.discarded()) << "that is other memory";
    payload.revoke(nullptr);
    EXPECT_FALSE(payload.discarded());
    payload.revoke(memory.data());
    EXPECT_TRUE(payload.discarded());
    EXPECT_EQ(payload.data(), nullptr);
    EXPECT_TRUE(completed(payload).discarded);
    EXPECT_EQ(memory.back(), std::byte{0});
  }
}

TEST(PayloadBuffer, TheSinkMayDiscardIt) {
  ReceiveBudget budget(1024 * kibibyte, 1024 * kibibyte);
  ReceiveAccount account(&budget);
  PayloadBuffer payload(10 * kibibyte, &account);
  ASSERT_TRUE(payload.allocate());
  payload.select({ReceiveBuffer::Kind::discard, {}});
  EXPECT_TRUE(payload.discarded());
  EXPECT_EQ(budget.used(), 0U);
}

TEST(PayloadBuffer, MemoryThatTheTransportHasIsChargedFirst) {
  ReceiveBudget budget(64 * kibibyte, 64 * kibibyte);
  ReceiveAccount account(&budget);
  PayloadBuffer large(100 * kibibyte, &account);
  EXPECT_FALSE(large.charge());
  PayloadBuffer payload(10 * kibibyte, &account);
  ASSERT_TRUE(payload.charge());
  EXPECT_EQ(budget.used(), 10 * kibibyte);
  Block* const block = Block::allocate(10 * kibibyte);
  payload.adopt(Buffer::adopt(block, block->data(), 10 * kibibyte));
  EXPECT_EQ(payload.data(), block->data());
  EXPECT_EQ(completed(payload).payload_block, block);
  EXPECT_EQ(budget.used(), 0U);
}

TEST(PayloadBuffer, AnEmptyPayloadNeedsNothing) {
  PayloadBuffer payload;
  EXPECT_TRUE(payload.grow(0, 0));
  const Message message = completed(payload);
  EXPECT_TRUE(message.payload.empty());
  EXPECT_FALSE(message.discarded);
}

}  // namespace
}  // namespace hawser::transport
