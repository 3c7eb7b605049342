#include "rpc/session/pong_marks.h"

#include <gtest/gtest.h>

namespace hawser::rpc {
namespace {

TEST(PongMarks, APongThatIsNotSentAnswersLaterPings) {
  PongMarks marks;
  EXPECT_FALSE(marks.answered(0, 0));
  marks.add(0, 100);
  EXPECT_TRUE(marks.answered(0, 99));
  EXPECT_FALSE(marks.answered(0, 100)) << "it has been sent";
  EXPECT_FALSE(marks.answered(1, 99)) << "the pong has no body";
}

TEST(PongMarks, APongWithABodyAnswersPingsWithAndWithoutOne) {
  PongMarks marks;
  marks.add(1, 200);
  EXPECT_TRUE(marks.answered(0, 199));
  EXPECT_TRUE(marks.answered(1, 199));
  marks.add(0, 300);
  EXPECT_FALSE(marks.answered(1, 200));
  EXPECT_TRUE(marks.answered(0, 299));
}

}  // namespace
}  // namespace hawser::rpc
