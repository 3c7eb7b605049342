#include "base/escaped_text.h"

#include <gtest/gtest.h>

namespace hawser {
namespace {

std::string escaped(std::string_view text, std::size_t bytes_max) {
  std::string line = "peer ";
  append_escaped(line, text, bytes_max);
  return line.substr(5);
}

TEST(EscapedText, OnlyPrintableAsciiStaysAsItIs) {
  EXPECT_EQ(escaped("a ~Z", 100), "a ~Z");
  EXPECT_EQ(escaped("\x1f\n\x7f\xff\\", 100), "\\x1f\\x0a\\x7f\\xff\\x5c");
  EXPECT_EQ(escaped("", 100), "");
}

TEST(EscapedText, ALongTextIsCutBehindAWholeCharacter) {
  EXPECT_EQ(escaped("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(escaped("abcdefghi", 8), "abcde...");
  EXPECT_EQ(escaped("abc\n\n\n", 8), "abc...") << "an escape is not cut";
  EXPECT_EQ(escaped("abc\n", 7), "abc\\x0a");
  EXPECT_EQ(escaped("abc", 2), "..") << "there is no room for more";
  EXPECT_EQ(escaped("abc", 0), "");
}

}  // namespace
}  // namespace hawser
