#include "base/parse_double.h"

#include <gtest/gtest.h>

#include <string>

namespace hawser {
namespace {

TEST(ParseDouble, ReadsAWholeDecimalNumber) {
  EXPECT_EQ(parse_double("0"), 0.0);
  EXPECT_EQ(parse_double("-1.5e3"), -1500.0);
  EXPECT_EQ(parse_double(".5"), 0.5);
  EXPECT_EQ(parse_double("2."), 2.0);
  EXPECT_EQ(parse_double("1E+2"), 100.0);
  EXPECT_EQ(parse_double("0.1"), 0.1);
  EXPECT_EQ(parse_double("4.9406564584124654e-324"), 4.9406564584124654e-324);
  EXPECT_EQ(parse_double("1.7976931348623157e308"), 1.7976931348623157e308);
  EXPECT_EQ(parse_double("0." + std::string(1000, '0') + "1e1001"), 1.0);
}

TEST(ParseDouble, RefusesOtherTexts) {
  for (const char* text : {"", "-", ".", "e1", "+1", " 1", "1 ", "1,5", "1e", "0x10", "inf", "-inf", "nan", "1e400",
                           "1e-400", "--1", "1.2.3"}) {
    EXPECT_FALSE(parse_double(text)) << text;
  }
  EXPECT_FALSE(parse_double(std::string_view("1\0", 2)));
}

}  // namespace
}  // namespace hawser
