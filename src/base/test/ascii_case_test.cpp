#include "base/ascii_case.h"

#include <gtest/gtest.h>

#include <string>

namespace hawser {
namespace {

TEST(AsciiCase, OnlyTheLettersOfAsciiChange) {
  for (int code = 0; code < 256; ++code) {
    const char c = static_cast<char>(code);
    const bool upper = code >= 65 && code <= 90;
    EXPECT_EQ(ascii_lower(c), upper ? static_cast<char>(code + 32) : c) << code;
  }
}

TEST(AsciiCase, ATextKeepsItsLengthAndItsOtherBytes) {
  EXPECT_EQ(in_lower_case("Content-TYPE@[`{ \xc3\x84"), "content-type@[`{ \xc3\x84");
  EXPECT_EQ(in_lower_case(std::string_view("A\0Z", 3)), std::string_view("a\0z", 3));
  EXPECT_EQ(in_lower_case(""), "");
}

TEST(AsciiCase, TextsAreComparedWithoutTheCaseOfLetters) {
  EXPECT_TRUE(equal_without_case("Keep-Alive", "kEEP-aLIVE"));
  EXPECT_TRUE(equal_without_case("", ""));
  EXPECT_FALSE(equal_without_case("close", "closed"));
  EXPECT_FALSE(equal_without_case("closed", "close"));
  // Bytes that differ by 32 and are not letters: '@' and '`', '[' and '{'.
  EXPECT_FALSE(equal_without_case("@", "`"));
  EXPECT_FALSE(equal_without_case("[", "{"));
  EXPECT_FALSE(equal_without_case("\xc3\x84", "\xc3\xa4"));
}

}  // namespace
}  // namespace hawser
