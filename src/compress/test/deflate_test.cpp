#include "compress/deflate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>

namespace hawser::compress {
namespace {

class Deflate : public testing::TestWithParam<Format> {
 protected:
  static Buffer packed(std::string_view text, bool fast = true) {
    return Deflater({.format = GetParam(), .fast = fast}).all(as_bytes(text));
  }
  static Unpacked unpacked(Bytes in, std::size_t bytes_max, std::size_t first = 16) {
    detail::ReceiveCharge none;
    return inflate_all(GetParam(), in, GrowingOutput(first, bytes_max, nullptr, none));
  }
};

std::string sample(std::size_t bytes) {
  std::string text(bytes, 'a');
  for (std::size_t i = 0; i < bytes; i += 5) text[i] = static_cast<char>(i * 37 >> 3);
  return text;
}

TEST_P(Deflate, TextsOfEverySizeComeBack) {
  for (const std::size_t size : {0U, 1U, 15U, 16U, 17U, 4096U, 100'000U}) {
    const std::string text = sample(size);
    for (const bool fast : {true, false}) {
      const Unpacked result = unpacked(packed(text, fast).bytes(), size);
      ASSERT_EQ(result.problem, Problem::none) << size;
      EXPECT_TRUE(result.data.text() == text) << size;
    }
  }
}

TEST_P(Deflate, OutputEndsAtTheLimit) {
  const std::string zeros(1 << 20, '\0');
  EXPECT_EQ(unpacked(packed(zeros).bytes(), zeros.size() - 1).problem, Problem::too_large);
  EXPECT_EQ(unpacked(packed("x").bytes(), 0).problem, Problem::too_large);
  EXPECT_EQ(unpacked(packed(zeros).bytes(), zeros.size()).problem, Problem::none);
}

TEST_P(Deflate, MemoryIsChargedAsItGrows) {
  const std::string zeros(1 << 20, '\0');
  detail::ReceiveBudget budget(1 << 16, 1 << 16);
  detail::ReceiveAccount account(&budget);
  {
    detail::ReceiveCharge charge;
    const Buffer small = packed(zeros);
    const Unpacked refused = inflate_all(GetParam(), small.bytes(), GrowingOutput(16, 1 << 21, &account, charge));
    EXPECT_EQ(refused.problem, Problem::no_memory);
    EXPECT_GE(budget.used(), std::size_t{1} << 15);
  }
  EXPECT_EQ(budget.used(), 0U);
}

TEST_P(Deflate, EveryBeginningAndEveryOtherEndIsMalformed) {
  const Buffer all = packed(sample(500));
  for (std::size_t size = 0; size < all.size(); ++size) {
    EXPECT_EQ(unpacked(all.bytes().first(size), 1000).problem, Problem::malformed) << size;
  }
  EXPECT_EQ(unpacked(as_bytes(std::string(all.text()) + "x"), 1000).problem, Problem::malformed);
  std::string wrong(all.text());
  wrong[wrong.size() - 5] = static_cast<char>(wrong[wrong.size() - 5] ^ 1);
  EXPECT_EQ(unpacked(as_bytes(wrong), 1000).problem, Problem::malformed);
}

TEST_P(Deflate, InputAndOutputComeInPieces) {
  const std::string text = sample(5000);
  Deflater deflater({.format = GetParam()});
  ASSERT_TRUE(deflater.ready());
  std::string all;
  for (std::size_t at = 0; at < text.size(); at += 700) {
    const auto piece = std::string_view(text).substr(at, 700);
    deflater.add(as_bytes(piece), at % 1400 == 0 ? Deflater::Flush::part : Deflater::Flush::none, all);
  }
  deflater.add({}, Deflater::Flush::end, all);
  for (const std::size_t cut : {1U, 7U, 10'000U}) {
    Inflater inflater(GetParam());
    std::string back;
    Bytes left = as_bytes(all);
    Inflater::Step step;
    while (step.status == Inflater::Status::more && back.size() <= text.size()) {
      std::byte room[13];
      step = inflater.step(left.first(std::min(cut, left.size())), room);
      back += as_text({room, step.written});
      left = left.subspan(step.read);
    }
    EXPECT_EQ(step.status, Inflater::Status::end);
    EXPECT_TRUE(back == text && left.empty()) << cut;
  }
}

TEST_P(Deflate, AMemberFollowsTheOther) {
  const Buffer one = packed("one");
  Inflater inflater(GetParam());
  for (int i = 0; i < 2; ++i) {
    std::byte room[10];
    const Inflater::Step step = inflater.step(one.bytes(), room);
    EXPECT_EQ(step.status, Inflater::Status::end);
    EXPECT_EQ(as_text({room, step.written}), "one");
    inflater.restart();
  }
}

TEST_P(Deflate, ChangedBytesDoNoHarm) {
  std::mt19937 random(1);
  const std::string good(packed(sample(3000)).text());
  for (int i = 0; i < 2000; ++i) {
    std::string wrong = good;
    for (int n = 0; n < 3; ++n) wrong[random() % wrong.size()] = static_cast<char>(random());
    const Unpacked result = unpacked(as_bytes(wrong), 4000);
    EXPECT_TRUE(result.problem != Problem::none || result.data.size() <= 4000);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Deflate, testing::Values(Format::gzip, Format::zlib), [](const auto& format) {
  return std::string(format.param == Format::gzip ? "Gzip" : "Zlib");
});

TEST(Gzip, StatesItsLengthAtItsEnd) {
  EXPECT_EQ(announced_bytes(Deflater(DeflaterOptions()).all(as_bytes(sample(70'000))).bytes()), 70'000U);
  EXPECT_EQ(announced_bytes({}), 0U);
  EXPECT_EQ(announced_bytes(as_bytes(std::string_view("abc"))), 0U);
  // A span is often a part of a longer one.
  EXPECT_EQ(announced_bytes(as_bytes(std::string_view("\1\2\3\4\5")).first(4)), 0x04030201U);
}

TEST(Gzip, IsNotZlib) {
  detail::ReceiveCharge none;
  const Buffer gzip = Deflater({.format = Format::gzip}).all(as_bytes(std::string_view("text")));
  EXPECT_EQ(inflate_all(Format::zlib, gzip.bytes(), GrowingOutput(16, 16, nullptr, none)).problem, Problem::malformed);
}

TEST_P(Deflate, IsReadyUnlessItsOptionsAreRefused) {
  EXPECT_TRUE(Inflater(GetParam()).ready());
  EXPECT_TRUE(Deflater({.format = GetParam()}).ready());
  EXPECT_FALSE(Deflater({.format = GetParam(), .window_bits = 99}).ready());
  EXPECT_FALSE(Deflater({.format = GetParam(), .memory_level = 99}).ready());
}

TEST(GrowingOutput, DoublesUntilItsLimit) {
  detail::ReceiveCharge none;
  GrowingOutput out(4, 10, nullptr, none);
  for (const std::size_t room : {4U, 4U, 2U}) {
    EXPECT_FALSE(out.at_limit());
    if (out.full()) out.grow();
    ASSERT_EQ(out.room(), room);
    std::memset(out.end(), static_cast<int>(room), room);
    out.add(room);
    EXPECT_TRUE(out.full());
  }
  EXPECT_TRUE(out.at_limit());
  EXPECT_EQ(out.take().text(), "\4\4\4\4\4\4\4\4\2\2");
}

}  // namespace
}  // namespace hawser::compress
