#include "base/byte_fields.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hawser {
namespace {

std::vector<std::byte> example() {
  return ByteWriter()
      .number(std::uint8_t{7})
      .number(std::uint32_t{0x01020304})
      .bytes(as_bytes(std::string_view("text")))
      .zeros(3)
      .number(std::uint16_t{0xfffe})
      .take();
}

TEST(ByteFields, AreReadAsTheyWereWritten) {
  const std::vector<std::byte> bytes = example();
  EXPECT_EQ(as_text(bytes), std::string_view("\x07\x04\x03\x02\x01text\0\0\0\xfe\xff", 14));
  ByteReader reader(bytes);
  EXPECT_EQ(reader.number<std::uint8_t>(), 7);
  EXPECT_EQ(reader.number<std::uint32_t>(), 0x01020304U);
  std::array<std::byte, 4> text{};
  reader.copy_to(text);
  EXPECT_EQ(as_text(text), "text");
  EXPECT_TRUE(reader.zeros(3));
  EXPECT_FALSE(reader.finished());
  EXPECT_EQ(reader.number<std::int16_t>(), -2);
  EXPECT_TRUE(reader.finished());
}

TEST(ByteFields, WhatIsMissingIsZeroAndNoticed) {
  const std::vector<std::byte> bytes = example();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy, so that a read beyond its end is detected.
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    ByteReader reader(cut);
    reader.number<std::uint8_t>();
    reader.number<std::uint32_t>();
    std::array<std::byte, 4> text{std::byte{1}, std::byte{1}, std::byte{1}, std::byte{1}};
    reader.copy_to(text);
    if (size < 9) {
      EXPECT_EQ(text, (std::array<std::byte, 4>{}));
    }
    EXPECT_EQ(reader.zeros(3), size >= 12) << size;
    EXPECT_EQ(reader.number<std::uint16_t>(), 0) << size;
    EXPECT_FALSE(reader.complete());
    EXPECT_FALSE(reader.finished());
    // A later field is missing too, even if it would fit into the remaining bytes: fields are read in order.
    EXPECT_EQ(reader.number<std::uint8_t>(), 0);
    EXPECT_TRUE(reader.bytes(1).empty());
    EXPECT_TRUE(reader.rest().empty());
  }
}

TEST(ByteFields, HugeCountsAreMissing) {
  const std::vector<std::byte> bytes(8, std::byte{1});
  ByteReader reader(bytes);
  EXPECT_TRUE(reader.bytes(SIZE_MAX).empty());
  EXPECT_FALSE(reader.complete());
}

TEST(ByteFields, NotEveryByteIsZero) {
  const std::vector<std::byte> bytes{std::byte{0}, std::byte{1}, std::byte{0}};
  ByteReader reader(bytes);
  EXPECT_FALSE(reader.zeros(2));
  EXPECT_TRUE(reader.zeros(1));
  EXPECT_TRUE(reader.finished());
}

TEST(ByteFields, TheRestIsTakenOnce) {
  const std::vector<std::byte> bytes = example();
  ByteReader reader(bytes);
  reader.number<std::uint8_t>();
  EXPECT_EQ(reader.rest().size(), bytes.size() - 1);
  EXPECT_TRUE(reader.rest().empty());
  EXPECT_TRUE(reader.finished());
}

TEST(ByteFields, AFieldIsFilledLater) {
  ByteWriter writer;
  writer.number(std::uint32_t{0}).bytes(as_bytes(std::string_view("body")));
  writer.replace(0, static_cast<std::uint32_t>(writer.size()));
  EXPECT_EQ(as_text(writer.written()), std::string_view("\x08\0\0\0body", 8));
}

}  // namespace
}  // namespace hawser
