#include "base/decimal_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace hawser {
namespace {

TEST(DecimalText, HasAFixedNumberOfDecimals) {
  EXPECT_EQ(fixed_text(0, 1), "0.0");
  EXPECT_EQ(fixed_text(3.276, 2), "3.28");
  EXPECT_EQ(fixed_text(-1234567.25, 1), "-1234567.2");
  EXPECT_EQ(fixed_text(99.6, 0), "100");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::max(), 1).size(), 311U);
}

TEST(DecimalText, HasFewDigits) {
  EXPECT_EQ(short_text(13.5678, 3), "13.6");
  EXPECT_EQ(short_text(2, 3), "2");
  EXPECT_EQ(short_text(0.0000238419, 3), "2.38e-05");
  EXPECT_EQ(short_text(123456, 3), "1.23e+05");
}

TEST(DecimalText, HasNoDigitsForWhatIsNotANumber) {
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::infinity(), 1), "inf");
  EXPECT_EQ(short_text(std::numeric_limits<double>::quiet_NaN(), 3), "nan");
}

TEST(CountText, TheNounHasTheNumberOfTheCount) {
  EXPECT_EQ(count_text(0, "byte"), "0 bytes");
  EXPECT_EQ(count_text(1, "byte"), "1 byte");
  EXPECT_EQ(count_text(18'446'744'073'709'551'615U, "byte"), "18446744073709551615 bytes");
  EXPECT_EQ(count_text(1, "entry"), "1 entry");
  EXPECT_EQ(count_text(2, "entry"), "2 entries");
  EXPECT_EQ(count_text(3, "address"), "3 addresses");
}

}  // namespace
}  // namespace hawser
