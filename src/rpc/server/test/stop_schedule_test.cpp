#include "rpc/server/stop_schedule.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>

namespace hawser::rpc {
namespace {

using namespace std::chrono_literals;
using StopPhase = StopSchedule::Phase;

constexpr Time start{100s};

TEST(StopSchedule, CancelsAfterTheGraceAndEndsAfterAnotherSecond) {
  StopSchedule stop;
  EXPECT_TRUE(stop.serving());
  EXPECT_TRUE(stop.begin(start, 5s, start + 5s));
  EXPECT_EQ(stop.next(), start + StopSchedule::silence_check);
  stop.checked(start + 4900ms);
  EXPECT_EQ(stop.next(), start + 5s);
  EXPECT_FALSE(stop.cancels(start + 5s - 1ns));
  EXPECT_FALSE(stop.ends(start + 5s)) << "the calls were not cancelled";
  EXPECT_TRUE(stop.cancels(start + 5s));
  EXPECT_FALSE(stop.cancels(start + 5s)) << "a second time";
  EXPECT_FALSE(stop.ends(start + 6s - 1ns));
  EXPECT_TRUE(stop.ends(start + 6s));
  EXPECT_FALSE(stop.ends(start + 6s)) << "a second time";
  EXPECT_EQ(stop.phase(), StopPhase::ending);
  stop.stop();
  EXPECT_TRUE(stop.stopped());
}

TEST(StopSchedule, ALaterCallOnlyShortensTheGrace) {
  StopSchedule stop;
  EXPECT_TRUE(stop.begin(start, 5s, start + 5s));
  EXPECT_FALSE(stop.begin(start + 1s, 60s, start + 61s));
  EXPECT_FALSE(stop.cancels(start + 4s));
  EXPECT_FALSE(stop.begin(start + 4s, 100ms, start + 4100ms));
  EXPECT_TRUE(stop.cancels(start + 4100ms));
  EXPECT_TRUE(stop.ends(start + 4200ms)) << "a short grace has a short end";
}

TEST(StopSchedule, AGraceWithoutEndNeverCancels) {
  StopSchedule stop;
  EXPECT_TRUE(stop.begin(start, forever, Time::max()));
  EXPECT_FALSE(stop.cancels(start + std::chrono::hours(24 * 365)));
  EXPECT_EQ(stop.next(), start + StopSchedule::silence_check);
}

TEST(StopSchedule, GoesForwardAlone) {
  constexpr std::array phases = {StopPhase::serving, StopPhase::finishing, StopPhase::cancelling, StopPhase::ending,
                                 StopPhase::stopped};
  for (std::size_t from = 0; from < phases.size(); ++from) {
    for (std::size_t to = 0; to < phases.size(); ++to) {
      const bool next = to == from + 1;
      const bool empty = phases[to] == StopPhase::stopped && from != 0 && from < to;
      EXPECT_EQ(StopSchedule::allows(phases[from], phases[to]), next || empty) << from << " to " << to;
    }
  }
}

}  // namespace
}  // namespace hawser::rpc
