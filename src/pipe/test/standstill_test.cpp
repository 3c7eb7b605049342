#include "pipe/standstill.h"

#include <gtest/gtest.h>

namespace hawser::pipe {
namespace {

TEST(Standstill, CountsChecksWithoutMovement) {
  Standstill sent;
  EXPECT_EQ(sent.check(0), 1U) << "nothing has moved since the start";
  EXPECT_EQ(sent.check(0), 2U);
  EXPECT_EQ(sent.check(7), 0U);
  EXPECT_EQ(sent.value(), 7U);
  EXPECT_EQ(sent.check(7), 1U);
  EXPECT_EQ(sent.check(3), 0U) << "less than before is movement, too";
}

TEST(Standstill, BeginsAnewAtAValue) {
  Standstill unsent;
  EXPECT_EQ(unsent.check(0), 1U);
  unsent.begin(5);
  EXPECT_EQ(unsent.value(), 5U);
  EXPECT_EQ(unsent.check(5), 1U);
  unsent.begin(5);
  EXPECT_EQ(unsent.check(4), 0U);
}

// Such a check remembers the number, so an earlier movement is not seen as one after it.
TEST(Standstill, ACheckThatDoesNotCountEndsTheRow) {
  Standstill sent;
  EXPECT_EQ(sent.check(0), 1U);
  EXPECT_EQ(sent.check(0, false), 0U);
  EXPECT_EQ(sent.check(0), 1U);
  EXPECT_EQ(sent.check(9, false), 0U);
  EXPECT_EQ(sent.check(9), 1U);
}

}  // namespace
}  // namespace hawser::pipe
