#include "pipe/quiet_time.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hawser::pipe {
namespace {

using namespace std::chrono_literals;

TEST(QuietTime, CountsFromTheLastByteOrTheLastWork) {
  QuietTime quiet;
  const Time begin = Time{} + 1h;
  EXPECT_EQ(quiet.check(begin, true, 0), 0s);
  EXPECT_EQ(quiet.check(begin + 1s, true, 0), 1s);
  EXPECT_EQ(quiet.check(begin + 2s, true, 7), 0s) << "bytes have come";
  EXPECT_EQ(quiet.check(begin + 3s, true, 7), 1s);
  EXPECT_EQ(quiet.check(begin + 4s, false, 7), 0s) << "it works";
  EXPECT_EQ(quiet.check(begin + 9s, true, 7), 5s);
}

}  // namespace
}  // namespace hawser::pipe
