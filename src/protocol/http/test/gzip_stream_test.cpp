#include "protocol/http/gzip_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>

#include "protocol/http/gzip.h"
#include "protocol/http/incoming_body.h"

namespace hawser::protocol::http {
namespace {

using Flush = BodyDeflater::Flush;

// Gives `packed` to a new BodyInflater in pieces of `piece` bytes, and returns the whole body or the error.
Result<std::string> inflated(std::string_view packed, std::size_t piece, std::size_t bytes_max = 64 * 1024) {
  const std::unique_ptr<BodyInflater> inflater = BodyInflater::make();
  std::string out;
  while (!packed.empty()) {
    inflater->give(std::string(packed.substr(0, piece)));
    packed.remove_prefix(std::min(piece, packed.size()));
    while (!inflater->wants_input()) {
      Result<std::string> part = inflater->next(bytes_max);
      if (!part) return part;
      EXPECT_LE(part->size(), bytes_max);
      out += *part;
    }
  }
  if (!inflater->at_end()) return fail(ErrorCode::unavailable, "not complete");
  return out;
}

std::string deflated(std::string_view text, std::size_t piece, Flush flush = Flush::part) {
  const std::unique_ptr<BodyDeflater> deflater = BodyDeflater::make(nullptr);
  std::string out;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    out += deflater->add(as_bytes(text.substr(0, piece)), flush);
  }
  return out + deflater->add({}, Flush::end);
}

std::string random_text(std::size_t size, unsigned characters, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random() % characters);
  return text;
}

class HttpGzipStream : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_gzip()) GTEST_SKIP() << "built without zlib";
  }
};

TEST_F(HttpGzipStream, EachPartCanBeReadBeforeTheNext) {
  const std::unique_ptr<BodyDeflater> deflater = BodyDeflater::make(nullptr);
  const std::unique_ptr<BodyInflater> inflater = BodyInflater::make();
  std::size_t packed_bytes = 0;
  for (int i = 0; i < 500; ++i) {
    const std::string part = "data: {\"event\": " + std::to_string(i) + "}\n\n";
    const std::string packed = deflater->add(as_bytes(part), Flush::part);
    packed_bytes += packed.size();
    inflater->give(packed);
    const Result<std::string> got = inflater->next(1000);
    ASSERT_TRUE(got);
    ASSERT_EQ(*got, part);
    ASSERT_TRUE(inflater->wants_input());
    ASSERT_FALSE(inflater->at_end());
  }
  EXPECT_LT(packed_bytes, 500U * 15U) << "later parts use what earlier ones have sent";
  inflater->give(deflater->add({}, Flush::end));
  EXPECT_EQ(inflater->next(1000), "");
  EXPECT_TRUE(inflater->at_end());
}

TEST_F(HttpGzipStream, AllBodiesSurviveAllCuts) {
  unsigned seed = 1;
  for (const unsigned characters : {1U, 4U, 256U}) {
    for (const std::size_t size : {0U, 1U, 100U, 20'000U, 100'000U}) {
      const std::string text = random_text(size, characters, ++seed);
      for (const std::size_t piece : {std::size_t{1}, std::size_t{777}, std::size_t{16'384}, std::size_t{200'000}}) {
        if (piece == 1 && size > 100) continue;
        const std::string packed = deflated(text, piece);
        for (const std::size_t cut : {std::size_t{1}, std::size_t{7}, std::size_t{100'000}}) {
          ASSERT_EQ(inflated(packed, cut), text) << size << " " << piece << " " << cut;
        }
        ASSERT_EQ(inflated(packed, 100'000, 10), text);
        const Result<Buffer> whole = gunzip(as_bytes(packed), size);
        ASSERT_TRUE(whole);
        ASSERT_EQ(whole->text(), text);
      }
      ASSERT_EQ(inflated(deflated(text, 5000, Flush::none), 1000), text);
    }
  }
}

TEST_F(HttpGzipStream, TheWindowIsSmallButCompresses) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "{\"name\": \"value " + std::to_string(i * 7919 % 10'000) + "\"},\n";
  EXPECT_LT(deflated(text, 16 * 1024).size(), text.size() / 3);
}

TEST_F(HttpGzipStream, MembersMayFollowEachOther) {
  const std::string two = deflated("one ", 100) + deflated("", 100) + deflated("two", 100);
  for (const std::size_t cut : {std::size_t{1}, std::size_t{1000}}) EXPECT_EQ(inflated(two, cut), "one two");
}

// A client's loop must not wait for a body of empty members, which takes a server nothing.
TEST_F(HttpGzipStream, ManyEmptyMembersAreReadInManySteps) {
  const std::string empty = deflated("", 1);
  std::string packed;
  for (int i = 0; i < 10'000; ++i) packed += empty;
  const std::unique_ptr<BodyInflater> inflater = BodyInflater::make();
  inflater->give(packed + deflated("end", 3));
  std::string out;
  int steps = 0;
  for (; !inflater->wants_input(); ++steps) {
    const Result<std::string> part = inflater->next(64 * 1024);
    ASSERT_TRUE(part);
    out += *part;
  }
  EXPECT_EQ(out, "end");
  EXPECT_TRUE(inflater->at_end());
  EXPECT_GE(steps, 30);
}

TEST_F(HttpGzipStream, MalformedBodiesAreRefused) {
  const std::string text = random_text(10'000, 16, 5);
  const std::string packed = deflated(text, 1000);
  for (std::size_t size = 1; size < packed.size(); size += size < 30 ? 1 : 97) {
    EXPECT_FALSE(inflated(packed.substr(0, size), 500)) << size;
  }
  EXPECT_FALSE(inflated(packed + "x", 500)) << "bytes behind the end";
  EXPECT_FALSE(inflated("no gzip at all", 3));
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string wrong = packed;
    wrong[random() % wrong.size()] ^= static_cast<char>(1 + random() % 255);
    const Result<std::string> got = inflated(wrong, 1 + random() % 2000);
    if (!got) {
      ++refused;
    } else {
      EXPECT_EQ(*got, text) << "a change of the header's time or system does no harm";
    }
  }
  EXPECT_GT(refused, 250);
}

TEST_F(HttpGzipStream, ABombComesInSmallParts) {
  const std::unique_ptr<BodyDeflater> deflater = BodyDeflater::make(nullptr);
  const std::string zeros(1 << 20, '\0');
  std::string bomb;
  for (int i = 0; i < 64; ++i) bomb += deflater->add(as_bytes(zeros), Flush::none);
  bomb += deflater->add({}, Flush::end);
  ASSERT_LT(bomb.size(), std::size_t{1} << 20);
  const std::unique_ptr<BodyInflater> inflater = BodyInflater::make();
  inflater->give(bomb);
  std::size_t total = 0;
  while (!inflater->wants_input()) {
    const Result<std::string> part = inflater->next(64 * 1024);
    ASSERT_TRUE(part);
    ASSERT_LE(part->size(), 64U * 1024U);
    ASSERT_LE(part->capacity(), 3U * 64U * 1024U);
    total += part->size();
  }
  EXPECT_EQ(total, 64U << 20);
}

TEST_F(HttpGzipStream, TheMemoryIsCharged) {
  constexpr std::size_t blocks_bytes = 2 * rpc::ByteSession::receive_block_bytes;
  detail::ReceiveBudget budget(blocks_bytes + 2 * BodyDeflater::memory_bytes, SIZE_MAX);
  detail::ReceiveAccount account(&budget);
  std::unique_ptr<BodyDeflater> one = BodyDeflater::make(&account);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(account.used(), BodyDeflater::memory_bytes);
  const std::unique_ptr<BodyDeflater> two = BodyDeflater::make(&account);
  ASSERT_NE(two, nullptr);
  // The connection could not receive any more.
  EXPECT_EQ(BodyDeflater::make(&account), nullptr);
  EXPECT_EQ(account.used(), 2 * BodyDeflater::memory_bytes);
  one.reset();
  EXPECT_EQ(account.used(), BodyDeflater::memory_bytes);
  EXPECT_NE(BodyDeflater::make(&account), nullptr);
}

}  // namespace
}  // namespace hawser::protocol::http
