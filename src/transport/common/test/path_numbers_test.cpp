#include "transport/common/path_numbers.h"

#include <gtest/gtest.h>

#include <new>

namespace hawser::transport {
namespace {

struct GenerationCounter final : PathCipher {
  bool encrypts() const noexcept override { return false; }
  void seal(const Place&, Bytes, std::span<const ConstBuffer>, std::byte*, std::byte*) override {}
  bool open(const Place&, Bytes, Bytes, std::byte*, const std::byte*) noexcept override { return true; }
  void begin_generation() override {
    if (fails) throw std::bad_alloc();
    ++own;
  }
  void begin_peer_generation() noexcept override { ++peer; }
  void count_refused() noexcept override {}

  bool fails = false;
  int own = 0;
  int peer = 0;
};

constexpr std::uint64_t no_limit = UINT64_MAX;
constexpr std::uint64_t wrap = std::uint64_t{1} << PathNumber::message_bits;

TEST(SentNumbers, AGenerationEndsBehindItsLastMessage) {
  GenerationCounter cipher;
  SentNumbers numbers(no_limit, 2);
  for (std::uint64_t message = 0; message < 6; ++message) {
    const PathNumber number = numbers.next(cipher);
    EXPECT_EQ(number.message, message) << "the numbers continue through the generations";
    EXPECT_EQ(number.generation, message / 2);
    numbers.sent(10);
  }
  EXPECT_EQ(cipher.own, 2);
}

TEST(SentNumbers, AGenerationEndsWhenItHasProtectedItsBytes) {
  GenerationCounter cipher;
  SentNumbers numbers(100, no_limit);
  EXPECT_EQ(numbers.next(cipher).generation, 0U);
  numbers.sent(99);
  EXPECT_EQ(numbers.next(cipher).generation, 0U);
  numbers.sent(1);
  EXPECT_EQ(numbers.next(cipher).generation, 1U);
  numbers.sent(99);
  EXPECT_EQ(numbers.next(cipher).generation, 1U) << "the count of bytes begins with the generation";
}

TEST(SentNumbers, AMessageThatWasNotSentKeepsItsNumber) {
  GenerationCounter cipher;
  SentNumbers numbers(no_limit, 1);
  static_cast<void>(numbers.next(cipher));
  EXPECT_EQ(numbers.next(cipher).message, 0U);
  numbers.sent(1);
  cipher.fails = true;
  EXPECT_THROW(static_cast<void>(numbers.next(cipher)), std::bad_alloc);
  cipher.fails = false;
  EXPECT_EQ(numbers.next(cipher).encoded(), std::uint64_t{1} << PathNumber::message_bits | 1U);
  EXPECT_EQ(cipher.own, 1);
}

TEST(ReceivedNumbers, OrderSeparatesTheNextMessageFromLaterAndEarlierOnes) {
  GenerationCounter cipher;
  ReceivedNumbers numbers;
  for (int i = 0; i < 5; ++i) numbers.received(0, cipher);
  using Order = ReceivedNumbers::Order;
  const auto order = [&](std::uint64_t message) {
    return numbers.order(numbers.decode(message & PathNumber::message_mask));
  };
  EXPECT_EQ(order(5), Order::next);
  EXPECT_EQ(order(6), Order::ahead);
  EXPECT_EQ(order(5 + wrap / 2), Order::ahead);
  EXPECT_EQ(order(5 + wrap / 2 + 1), Order::repeated);
  EXPECT_EQ(order(4), Order::repeated);
  EXPECT_EQ(order(0), Order::repeated);
}

TEST(ReceivedNumbers, DecodeRestoresTheWholeNumber) {
  ReceivedNumbers numbers;
  EXPECT_EQ(numbers.decode(PathNumber{.generation = 0xFFFF, .message = 7}.encoded()).message, 7U);
  EXPECT_EQ(numbers.decode(PathNumber{.generation = 0xFFFF, .message = 7}.encoded()).generation, 0xFFFFU);
  EXPECT_EQ(numbers.decode(PathNumber{.generation = 2, .message = wrap + 7}.encoded()).encoded(), 2 * wrap | 7U)
      << "bits above the 48 must not reach the generation";
}

TEST(ReceivedNumbers, OnlyThePresentGenerationAndTheNextHaveKeys) {
  GenerationCounter cipher;
  ReceivedNumbers numbers;
  EXPECT_TRUE(numbers.has_keys(0));
  EXPECT_TRUE(numbers.has_keys(1));
  EXPECT_FALSE(numbers.has_keys(2));
  EXPECT_FALSE(numbers.has_keys(0xFFFF));
  numbers.received(0, cipher);
  EXPECT_EQ(cipher.peer, 0);
  numbers.received(1, cipher);
  numbers.received(1, cipher);
  EXPECT_EQ(cipher.peer, 1) << "the generation begins once";
  EXPECT_FALSE(numbers.has_keys(0)) << "the keys of the generation before are gone";
  EXPECT_TRUE(numbers.has_keys(2));
}

TEST(ReceivedNumbers, GenerationsContinueBehindTheLastOf16Bits) {
  GenerationCounter cipher;
  ReceivedNumbers numbers;
  for (std::uint32_t generation = 1; generation <= 0xFFFF; ++generation) {
    numbers.received(static_cast<std::uint16_t>(generation), cipher);
  }
  EXPECT_TRUE(numbers.has_keys(0));
  numbers.received(0, cipher);
  EXPECT_FALSE(numbers.has_keys(0xFFFF));
  EXPECT_EQ(cipher.peer, 0x10000);
  EXPECT_EQ(numbers.next(), 0x10000U);
}

}  // namespace
}  // namespace hawser::transport
