#include "bench/load/size.h"

#include <gtest/gtest.h>

namespace hawser::bench {
namespace {

TEST(Size, ReadsNumbersWithAndWithoutUnit) {
  EXPECT_EQ(parse_size("128"), 128u);
  EXPECT_EQ(parse_size("128B"), 128u);
  EXPECT_EQ(parse_size("4K"), 4096u);
  EXPECT_EQ(parse_size("4k"), 4096u);
  EXPECT_EQ(parse_size("8M"), std::size_t{8} << 20);
  EXPECT_EQ(parse_size("1G"), std::size_t{1} << 30);
}

TEST(Size, RefusesEverythingElse) {
  for (const char* text :
       {"", "K", "0x10", "-1", "+1", "4KB", "4 K", " 4", "1.5M", "4T", "99999999999999999999", "99999999999G"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(Size, WritesTheShortestForm) {
  EXPECT_EQ(format_size(0), "0B");
  EXPECT_EQ(format_size(128), "128B");
  EXPECT_EQ(format_size(1025), "1025B");
  EXPECT_EQ(format_size(4096), "4K");
  EXPECT_EQ(format_size(std::size_t{8} << 20), "8M");
}

TEST(Size, ReadsWhatItWrites) {
  for (std::size_t bytes = 1; bytes < std::size_t{1} << 40; bytes = bytes * 3 + 1) {
    EXPECT_EQ(parse_size(format_size(bytes)), bytes);
    EXPECT_EQ(parse_size(format_size(bytes * 1024)), bytes * 1024);
  }
}

}  // namespace
}  // namespace hawser::bench
