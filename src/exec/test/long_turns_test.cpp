#include "exec/long_turns.h"

#include <gtest/gtest.h>

namespace hawser::exec {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LongTurns, HaveTheirLengthUntilOthersTakeTheirPlaces) {
  LongTurns turns;
  const Time first{seconds(1)};
  EXPECT_EQ(turns.length(Time{}), Duration::zero());
  EXPECT_EQ(turns.length(first), Duration::zero());
  turns.add(first, first + milliseconds(20), false);
  EXPECT_EQ(turns.length(first), milliseconds(20));
  EXPECT_EQ(turns.length(first + Duration(1)), Duration::zero()) << "no turn began then";
  EXPECT_EQ(turns.length(first + milliseconds(20)), Duration::zero()) << "the next turn was short";
  for (std::size_t i = 1; i <= LongTurns::kept; ++i) {
    EXPECT_EQ(turns.length(first), milliseconds(20));
    turns.add(first + seconds(i), first + seconds(i) + milliseconds(10), false);
  }
  EXPECT_EQ(turns.length(first), Duration::zero());
  EXPECT_EQ(turns.length(first + seconds(1)), milliseconds(10));
}

// Each time at which the clock was read within the turn lasts until its end, and not into the next turn.
TEST(LongTurns, LastFromEachReadingOfTheClockToTheirEnd) {
  LongTurns turns;
  const Time begin{seconds(1)};
  const auto at = [begin](int ms) { return begin + milliseconds(ms); };
  turns.add(at(0), at(20), true);
  turns.add(at(20), at(50), true);
  EXPECT_EQ(turns.length(at(0)), milliseconds(50)) << "the turn is not over";
  turns.add(at(50), at(51), false);
  turns.add(at(51), at(90), false);
  EXPECT_EQ(turns.length(at(0)), milliseconds(51));
  EXPECT_EQ(turns.length(at(20)), milliseconds(31));
  EXPECT_EQ(turns.length(at(50)), milliseconds(1));
  EXPECT_EQ(turns.length(at(51)), milliseconds(39));
}

}  // namespace
}  // namespace hawser::exec
