#include "hawser/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

namespace hawser {
namespace {

std::array<std::byte, 32> filled(unsigned char value, int step) {
  std::array<std::byte, 32> bytes;
  for (std::byte& byte : bytes) {
    byte = std::byte{value};
    value = static_cast<unsigned char>(value + step);
  }
  return bytes;
}

// RFC 3720, appendix B.4.
TEST(Crc32c, AgreesWithTheStandard) {
  EXPECT_EQ(crc32c(0, filled(0, 0)), 0x8a9136aaU);
  EXPECT_EQ(crc32c(0, filled(0xff, 0)), 0x62a8ab43U);
  EXPECT_EQ(crc32c(0, filled(0, 1)), 0x46dd794eU);
  EXPECT_EQ(crc32c(0, filled(31, -1)), 0x113fdb5cU);
  EXPECT_EQ(crc32c(0, as_bytes("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(0, {}), 0U);
}

// Computes the polynomial bit by bit: slow, and independent of both implementations of crc32c().
std::uint32_t by_bits(std::string_view text) {
  std::uint32_t crc = ~0U;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82f63b78U & (0U - (crc & 1U)));
  }
  return ~crc;
}

TEST(Crc32c, AgreesWithTheDefinitionAtEveryLengthAndSplit) {
  std::mt19937_64 random(3);
  std::string text(70, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::string_view whole = std::string_view(text).substr(0, size);
    const std::uint32_t expected = by_bits(whole);
    ASSERT_EQ(crc32c(0, as_bytes(whole)), expected) << size;
    for (std::size_t split = 0; split <= size; ++split) {
      const std::uint32_t first = crc32c(0, as_bytes(whole.substr(0, split)));
      ASSERT_EQ(crc32c(first, as_bytes(whole.substr(split))), expected) << size << " at " << split;
    }
  }
}

// The instruction computes three lanes of 256, 1360 or 4096 bytes at once and combines their checksums.
TEST(Crc32c, AgreesWithTheDefinitionAroundTheLanes) {
  std::mt19937_64 random(5);
  std::string text(3 * 4096 * 2 + 3 * 256 * 2 + 17, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (const std::size_t lanes : {3u * 256, 2u * 3 * 256, 3u * 1360, 3u * 1360 + 3 * 256, 2u * 3 * 1360, 3u * 4096,
                                  3u * 4096 + 3 * 256, 2u * 3 * 4096}) {
    for (const std::size_t size : {lanes - 1, lanes, lanes + 1, lanes + 8, lanes + 15}) {
      const std::size_t offset = random() % 8;
      const std::string_view part = std::string_view(text).substr(offset, size);
      ASSERT_EQ(crc32c(0, as_bytes(part)), by_bits(part)) << size;
      ASSERT_EQ(crc32c(crc32c(0, as_bytes(part.substr(0, 100))), as_bytes(part.substr(100))), by_bits(part)) << size;
    }
  }
}

}  // namespace
}  // namespace hawser
