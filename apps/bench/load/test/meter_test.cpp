#include "bench/load/meter.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace hawser::bench {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(Meter, CountsAfterTheWarmUpOnly) {
  Meter meter(1, 2, -1);
  const auto start = Meter::Clock::now();
  const auto call = [&](milliseconds end, std::uint64_t count) {
    meter.record(start + end - microseconds(50), start + end, count);
  };
  EXPECT_TRUE(meter.go_on(start + milliseconds(100)));
  call(milliseconds(150), 10);
  meter.warm();
  EXPECT_TRUE(meter.go_on(start + milliseconds(400)));  // The time is up, but one of the two calls has had no reply.
  call(milliseconds(450), 10);
  meter.warm();
  EXPECT_TRUE(meter.go_on(start + milliseconds(500)));
  call(milliseconds(600), 3);
  EXPECT_TRUE(meter.go_on(start + milliseconds(1400)));
  call(milliseconds(1450), 4);
  EXPECT_FALSE(meter.over());
  EXPECT_FALSE(meter.go_on(start + milliseconds(1600)));
  EXPECT_TRUE(meter.over());
  call(milliseconds(1650), 10);
  EXPECT_FALSE(meter.go_on(start + milliseconds(1700)));

  const CellResult result = meter.result({.size_bytes = 128, .concurrency = 2});
  EXPECT_EQ(result.calls, 7u);
  EXPECT_DOUBLE_EQ(result.seconds, 1.1);
  EXPECT_NEAR(result.p50_us, 50, 0.5);
  EXPECT_EQ(result.calls_at_once, 2u);
  EXPECT_EQ(result.errors, 0u);
}

TEST(Meter, GoesOnUntilACallWasCounted) {
  Meter meter(0.1, 1, -1);
  const auto start = Meter::Clock::now();
  meter.warm();
  EXPECT_TRUE(meter.go_on(start + milliseconds(300)));
  EXPECT_TRUE(meter.go_on(start + milliseconds(3000)));
  meter.record(start, start + milliseconds(3100));
  EXPECT_FALSE(meter.go_on(start + milliseconds(3101)));
  EXPECT_EQ(meter.result({}).calls, 1u);
}

TEST(Meter, DoesNotWaitForeverForTheFirstReplies) {
  Meter meter(0.1, 5, -1);
  const auto start = Meter::Clock::now();
  EXPECT_TRUE(meter.go_on(start + milliseconds(16'000)));
  EXPECT_FALSE(meter.go_on(start + milliseconds(60'000)));
  EXPECT_EQ(meter.result({}).calls, 0u);
}

TEST(Meter, KeepsTheFirstError) {
  Meter meter(1, 1, -1);
  meter.fail("first");
  meter.fail("second");
  EXPECT_EQ(meter.result({}).errors, 2u);
  EXPECT_EQ(meter.result({}).first_error, "first");
}

TEST(ProcessorTime, IsThatOfAProcess) {
  EXPECT_GT(processor_time_s(getpid()), 0);
  EXPECT_EQ(processor_time_s(-1), 0);
}

}  // namespace
}  // namespace hawser::bench
