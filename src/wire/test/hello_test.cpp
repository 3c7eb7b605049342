#include "wire/hello.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/little_endian.h"
#include "base/random.h"

namespace hawser::wire {
namespace {

Hello example() {
  return {.version_min = 1,
          .version_max = 3,
          .checksum = true,
          .message_bytes_max = 1 << 20,
          .calls_max = 77,
          .stream_window_bytes = 65'536,
          .refusal = Error::of_connection(Initiator::peer, ErrorCode::overloaded, "come again later")};
}

TEST(Hello, GoesThereAndBack) {
  const std::vector<std::byte> bytes = encode_hello(example());
  EXPECT_TRUE(is_hello(bytes));
  EXPECT_EQ(hello_body_bytes(bytes), bytes.size() - hello_prefix_bytes);
  const Result<Hello> hello = decode_hello(bytes);
  ASSERT_TRUE(hello);
  EXPECT_EQ(*hello, example());
}

NamedBytes named(std::string name, std::size_t bytes) {
  return {std::move(name), std::vector<std::byte>(bytes, std::byte{7})};
}

TEST(Hello, TransportsGoThereAndBack) {
  Hello hello = example();
  hello.refusal.reset();
  hello.offers = {named("shm", 24), named("rdma", 0)};
  hello.selection = named("rdma", transport_parameters_bytes_max);
  hello.declined = {named("shm", 50)};
  hello.answer = std::vector<std::byte>(11, std::byte{1});
  hello.unanswered = "no such device";
  hello.ready = true;
  hello.protection = 1;
  const Result<Hello> back = decode_hello(encode_hello(hello));
  ASSERT_TRUE(back) << back.error().text;
  EXPECT_EQ(*back, hello);
}

TEST(Hello, TheLargestSelectionWithEveryReasonFits) {
  Hello hello = example();
  hello.refusal.reset();
  hello.selection = named(std::string(transport_name_bytes_max, 'n'), transport_parameters_bytes_max);
  for (std::size_t i = 0; i < transports_max; ++i) hello.declined.push_back(named("path", 10'000));
  const std::vector<std::byte> bytes = encode_hello(hello);
  EXPECT_LE(bytes.size(), hello_prefix_bytes + hello_body_bytes_max);
  const Result<Hello> back = decode_hello(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->declined.back().bytes.size(), transport_reason_bytes_max);
  hello = example();
  hello.refusal.reset();
  for (std::size_t i = 0; i <= transports_max; ++i) hello.offers.push_back(named("path", transport_offer_bytes_max));
  const Result<Hello> offers = decode_hello(encode_hello(hello));
  ASSERT_TRUE(offers);
  EXPECT_EQ(offers->offers.size(), transports_max);
}

// Tests both sides of the limits on receipt with hellos that encode_hello() never produces.
TEST(Hello, AsManyOffersAndReasonsAsThereMayBe) {
  const auto field = [](std::uint16_t tag, const NamedBytes& one) {
    std::vector<std::byte> out(5);
    store_le(out.data(), tag);
    store_le(out.data() + 2, static_cast<std::uint16_t>(1 + one.name.size() + one.bytes.size()));
    out[4] = static_cast<std::byte>(one.name.size());
    for (const char c : one.name) out.push_back(static_cast<std::byte>(c));
    out.insert(out.end(), one.bytes.begin(), one.bytes.end());
    return out;
  };
  constexpr std::uint16_t tag_offer = 6;
  constexpr std::uint16_t tag_declined = 8;
  for (const std::uint16_t tag : {tag_offer, tag_declined}) {
    std::vector<std::byte> bytes = encode_hello({.message_bytes_max = 1024});
    const auto add = [&] {
      const std::vector<std::byte> more = field(tag, named("path", 3));
      bytes.insert(bytes.end(), more.begin(), more.end());
      store_le(bytes.data() + 6, static_cast<std::uint16_t>(bytes.size() - hello_prefix_bytes));
    };
    for (std::size_t i = 0; i < transports_max; ++i) add();
    const Result<Hello> most = decode_hello(bytes);
    ASSERT_TRUE(most) << most.error().text;
    EXPECT_EQ(tag == tag_offer ? most->offers.size() : most->declined.size(), transports_max);
    add();
    const Result<Hello> more = decode_hello(bytes);
    ASSERT_FALSE(more);
    EXPECT_NE(more.error().text.find("field " + std::to_string(tag) + " is malformed"), std::string::npos);
  }
}

TEST(Hello, TheLongestBodyIsUnderstoodAndNoLongerOne) {
  for (const std::size_t body : {hello_body_bytes_max - 1, hello_body_bytes_max, hello_body_bytes_max + 1}) {
    std::vector<std::byte> bytes = encode_hello(example());
    // An unknown field of a later version fills the hello up to the limit.
    constexpr std::uint16_t tag_unknown = 999;
    const std::size_t at = bytes.size();
    bytes.resize(hello_prefix_bytes + body);
    store_le(bytes.data() + at, tag_unknown);
    store_le(bytes.data() + at + 2, static_cast<std::uint16_t>(bytes.size() - at - 4));
    store_le(bytes.data() + 6, static_cast<std::uint16_t>(body));
    const Result<std::size_t> length = hello_body_bytes(bytes);
    const Result<Hello> hello = decode_hello(bytes);
    if (body <= hello_body_bytes_max) {
      EXPECT_EQ(length, body);
      ASSERT_TRUE(hello) << hello.error().text;
      EXPECT_EQ(*hello, example());
    } else {
      ASSERT_FALSE(length);
      EXPECT_NE(length.error().text.find("4097 bytes exceeds 4096"), std::string::npos) << length.error().text;
      EXPECT_FALSE(hello);
    }
  }
}

TEST(Hello, CutAnywhereItIsRefused) {
  const std::vector<std::byte> bytes = encode_hello(example());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    const Result<Hello> hello = decode_hello(cut);
    ASSERT_FALSE(hello) << size;
    EXPECT_EQ(hello.error().code, ErrorCode::protocol_error);
  }
}

TEST(Hello, RefusalsAreCutToTheirBound) {
  Hello hello = example();
  hello.refusal->text.assign(10'000, 'x');
  const std::vector<std::byte> bytes = encode_hello(hello);
  EXPECT_LE(bytes.size(), hello_prefix_bytes + hello_body_bytes_max);
  const Result<Hello> back = decode_hello(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->refusal->text.size(), refusal_text_bytes_max);
}

TEST(Hello, WhateverComesIsUnderstoodOrRefused) {
  Random random(3);
  const std::vector<std::byte> good = encode_hello(example());
  int understood = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::vector<std::byte> bytes = good;
    for (std::uint64_t change = random.below(4); change-- > 0;) {
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
    }
    if (random.chance(0.2)) bytes.resize(random.below(bytes.size() + 1));
    const Result<Hello> hello = decode_hello(bytes);
    understood += hello.has_value();
    if (hello) {
      EXPECT_GE(hello->version_max, hello->version_min);
      EXPECT_GE(hello->version_min, 1);
    } else {
      EXPECT_FALSE(hello.error().text.empty());
    }
  }
  EXPECT_GT(understood, 1'000);
}

}  // namespace
}  // namespace hawser::wire
