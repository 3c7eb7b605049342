#include "exec/spin_limit.h"

#include <gtest/gtest.h>

namespace hawser::exec {
namespace {

using std::chrono::microseconds;

// Reports a probe of a machine on which a wake-up takes `wake_up`, and to which the kernel adds its slack.
void probe(SpinLimit& limit, microseconds wake_up) {
  ASSERT_TRUE(limit.probe_due());
  limit.probed(SpinLimit::probe_sleep + microseconds(50) + wake_up, microseconds(50));
}

TEST(SpinLimit, GrowsWithWhatWakingUpTakes) {
  for (const auto& [wake_up, expected] :
       {std::pair{0, 50}, {12, 50}, {13, 52}, {100, 400}, {250, 1000}, {899, 1000}, {900, 50}}) {
    SpinLimit limit(std::nullopt);
    EXPECT_EQ(limit.get(), SpinLimit::least);
    for (int i = 0; i < 4; ++i) probe(limit, microseconds(wake_up));
    EXPECT_EQ(limit.get(), microseconds(expected));
  }
}

TEST(SpinLimit, TheLeastOfTheLastFewCounts) {
  SpinLimit limit(std::nullopt);
  for (const int wake_up : {900, 30, 800, 700}) {
    EXPECT_EQ(limit.get(), SpinLimit::least) << "not known yet";
    probe(limit, microseconds(wake_up));
  }
  EXPECT_EQ(limit.get(), microseconds(120));
  // The limit is measured again, but not at each sleep.
  for (int i = 0; i < 40; ++i) {
    for (unsigned sleep = 1; sleep < SpinLimit::probe_every; ++sleep) ASSERT_FALSE(limit.probe_due());
    probe(limit, microseconds(200));
  }
  EXPECT_EQ(limit.get(), microseconds(800));
}

TEST(SpinLimit, IsWhatItIsToldToBe) {
  SpinLimit limit(microseconds(3));
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(limit.probe_due());
  EXPECT_EQ(limit.get(), microseconds(3));
}

}  // namespace
}  // namespace hawser::exec
