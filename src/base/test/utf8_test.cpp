#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace hawser {
namespace {

// RFC 3629, section 4: the first and the last character of each row of its table.
TEST(Utf8, TheEndsOfEachRangeAreCharacters) {
  using namespace std::string_view_literals;
  for (const std::string_view character :
       {"\x00"sv, "\x7f"sv, "\xc2\x80"sv, "\xdf\xbf"sv, "\xe0\xa0\x80"sv, "\xe0\xbf\xbf"sv, "\xe1\x80\x80"sv,
        "\xec\xbf\xbf"sv, "\xed\x80\x80"sv, "\xed\x9f\xbf"sv, "\xee\x80\x80"sv, "\xef\xbf\xbf"sv, "\xf0\x90\x80\x80"sv,
        "\xf0\xbf\xbf\xbf"sv, "\xf1\x80\x80\x80"sv, "\xf3\xbf\xbf\xbf"sv, "\xf4\x80\x80\x80"sv, "\xf4\x8f\xbf\xbf"sv}) {
    EXPECT_EQ(utf8_character_bytes(character), character.size()) << testing::PrintToString(std::string(character));
    EXPECT_EQ(utf8_character_bytes(std::string(character) + "x"), character.size());
    EXPECT_TRUE(is_utf8(character));
    for (std::size_t size = 1; size < character.size(); ++size) {
      EXPECT_EQ(utf8_character_bytes(character.substr(0, size)), 0U) << "it is cut";
    }
  }
}

TEST(Utf8, BytesBesideTheRangesAreRefused) {
  for (const std::string_view bytes :
       {"\x80", "\xbf", "\xc1\xbf", "\xc2\x7f", "\xc2\xc0", "\xe0\x9f\xbf", "\xe1\x80\x7f", "\xe1\x80\xc0",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf1\x80\x80\x7f", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xff"}) {
    EXPECT_EQ(utf8_character_bytes(bytes), 0U) << testing::PrintToString(std::string(bytes));
    EXPECT_FALSE(is_utf8("a" + std::string(bytes) + "z"));
  }
}

}  // namespace
}  // namespace hawser
