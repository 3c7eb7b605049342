#include "protocol/http/collected_body.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace hawser::protocol::http {
namespace {

constexpr std::size_t first_bytes = 1024;

TEST(CollectedBody, ABodyOfUnknownLengthDoublesItsMemory) {
  const detail::ReceiveAccount account(nullptr);
  CollectedBody body(first_bytes);
  std::string all;
  for (int piece = 0; piece < 100; ++piece) {
    const std::string text(97, static_cast<char>('!' + piece % 90));
    const std::size_t before = body.capacity();
    const std::size_t size = body.size_for(body.size() + text.size(), 0, account);
    if (body.size() + text.size() <= before) {
      ASSERT_EQ(size, before);
    } else {
      ASSERT_EQ(size, before == 0 ? first_bytes : 2 * before);
      body.grow(size);
    }
    body.append(as_bytes(text));
    all += text;
  }
  EXPECT_EQ(as_text(body.bytes()), all);
  EXPECT_EQ(body.capacity(), 16 * first_bytes);
  EXPECT_EQ(body.size_for(100'000, 0, account), 100'000U);
}

TEST(CollectedBody, AnAnnouncedBodyHasItsMemoryAtOnceIfThereIsPlenty) {
  const detail::ReceiveAccount account(nullptr);
  CollectedBody body(first_bytes);
  EXPECT_EQ(body.size_for(1, 64 * 1024, account), 64U * 1024);
  EXPECT_EQ(body.size_for(6250, 100'000, account), 100'000U);
  EXPECT_EQ(body.size_for(6249, 100'000, account), std::max<std::size_t>(6249, first_bytes)) << "not a sixteenth of it";
  EXPECT_EQ(body.size_for(1, 10, account), 10U);
  EXPECT_EQ(body.size_for(11, 10, account), first_bytes) << "more than announced: the length is not known";
}

TEST(CollectedBody, AnAnnouncedBodyGrowsWithWhatArrivesIfMemoryIsScarce) {
  detail::ReceiveBudget budget(100'000, 100'000);
  detail::ReceiveAccount account(&budget);
  CollectedBody body(first_bytes);
  EXPECT_EQ(body.size_for(1, 50'000, account), 50'000U);
  EXPECT_EQ(body.size_for(1, 50'001, account), first_bytes);
  body.grow(30'000);
  EXPECT_EQ(body.size_for(30'001, 61'000, account), 60'000U);
  EXPECT_EQ(body.size_for(30'001, 51'000, account), 51'000U);
}

TEST(CollectedBody, WhatWasReceivedInPlaceIsAPartOfIt) {
  CollectedBody body(first_bytes);
  EXPECT_TRUE(body.space(10).empty());
  body.grow(8);
  body.append(as_bytes(std::string_view("abc")));
  EXPECT_EQ(body.space(2).size(), 2U);
  const MutableBytes space = body.space(100);
  ASSERT_EQ(space.size(), 5U);
  std::memcpy(space.data(), "de", 2);
  body.filled(2);
  EXPECT_EQ(as_text(body.bytes()), "abcde");
  body.grow(16);
  EXPECT_EQ(as_text(body.bytes()), "abcde");
  const Buffer shared = body.memory();
  body.clear();
  EXPECT_EQ(body.size(), 0U);
  EXPECT_EQ(body.capacity(), 0U);
  EXPECT_EQ(as_text(shared.bytes().first(5)), "abcde");
}

}  // namespace
}  // namespace hawser::protocol::http
