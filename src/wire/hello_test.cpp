#include "wire/hello.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"

namespace hawser::wire {
namespace {

Hello example() {
  return {.version_least = 1,
          .version_most = 3,
          .checksum = true,
          .message_bytes_max = 1 << 20,
          .calls_max = 77,
          .stream_window_bytes = 65'536,
          .refusal = Error{ErrorCode::overloaded, ErrorScope::connection, Initiator::peer, 0, "come again later"}};
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

TEST(Hello, PathsGoThereAndBack) {
  Hello hello = example();
  hello.refusal.reset();
  hello.offers = {named("shm", 24), named("rdma", 0)};
  hello.proposal = named("rdma", path_parameters_bytes_max);
  hello.declined = {named("shm", 50)};
  hello.answer = std::vector<std::byte>(11, std::byte{1});
  hello.unanswered = "no such device";
  hello.go = true;
  const Result<Hello> back = decode_hello(encode_hello(hello));
  ASSERT_TRUE(back) << back.error().text;
  EXPECT_EQ(*back, hello);
}

TEST(Hello, TheLargestProposalWithEveryReasonFits) {
  Hello hello = example();
  hello.refusal.reset();
  hello.proposal = named(std::string(path_name_bytes_max, 'n'), path_parameters_bytes_max);
  for (std::size_t i = 0; i < paths_max; ++i) hello.declined.push_back(named("path", 10'000));
  const std::vector<std::byte> bytes = encode_hello(hello);
  EXPECT_LE(bytes.size(), hello_prefix_bytes + hello_body_bytes_max);
  const Result<Hello> back = decode_hello(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->declined.back().bytes.size(), path_reason_bytes_max);
  hello = example();
  hello.refusal.reset();
  for (std::size_t i = 0; i <= paths_max; ++i) hello.offers.push_back(named("path", path_offer_bytes_max));
  const Result<Hello> offers = decode_hello(encode_hello(hello));
  ASSERT_TRUE(offers);
  EXPECT_EQ(offers->offers.size(), paths_max);
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
      EXPECT_GE(hello->version_most, hello->version_least);
      EXPECT_GE(hello->version_least, 1);
    } else {
      EXPECT_FALSE(hello.error().text.empty());
    }
  }
  EXPECT_GT(understood, 1'000);
}

}  // namespace
}  // namespace hawser::wire
