#include "transport/common/backlog_watermark.h"

#include <gtest/gtest.h>

namespace hawser::transport {
namespace {

TEST(BacklogWatermark, NotifiesOnceWhenTheBacklogFallsToHalf) {
  BacklogWatermark watermark;
  watermark.set(1000, 0);
  watermark.on_commit(1001);
  EXPECT_FALSE(watermark.on_sent(501));
  EXPECT_TRUE(watermark.passed());
  EXPECT_TRUE(watermark.on_sent(500));
  EXPECT_FALSE(watermark.passed());
  EXPECT_FALSE(watermark.on_sent(0)) << "it was notified before";
  watermark.on_commit(2000);
  EXPECT_TRUE(watermark.on_sent(0)) << "it has passed the mark again";
}

TEST(BacklogWatermark, ABacklogOfTheMarkHasNotPassedIt) {
  BacklogWatermark watermark;
  watermark.set(1000, 0);
  watermark.on_commit(1000);
  EXPECT_FALSE(watermark.on_sent(0));
}

TEST(BacklogWatermark, ANewMarkIsComparedWithTheBacklogAtOnce) {
  BacklogWatermark watermark;
  watermark.on_commit(std::size_t{1} << 40);
  EXPECT_FALSE(watermark.passed()) << "there is no mark yet";
  watermark.set(100, 101);
  EXPECT_TRUE(watermark.on_sent(50));
  watermark.on_commit(101);
  watermark.set(200, 101);
  EXPECT_FALSE(watermark.on_sent(50)) << "the new mark was not passed";
}

TEST(BacklogWatermark, WithMarkZeroAnythingWaitsForAnEmptyBacklog) {
  BacklogWatermark watermark;
  watermark.set(0, 0);
  watermark.on_commit(1);
  EXPECT_FALSE(watermark.on_sent(1));
  EXPECT_TRUE(watermark.on_sent(0));
}

}  // namespace
}  // namespace hawser::transport
