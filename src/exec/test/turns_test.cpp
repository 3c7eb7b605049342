#include <gtest/gtest.h>

#include <string>

#include "exec/blocked_turns.h"
#include "exec/source_turns.h"

namespace hawser::exec {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(BlockedTurns, AreReportedOnceASecond) {
  constexpr Time start{seconds(10)};
  BlockedTurns turns(milliseconds(50));
  EXPECT_FALSE(turns.reports(milliseconds(50), start)) << "the limit itself";
  EXPECT_TRUE(turns.reports(milliseconds(51), start));
  EXPECT_FALSE(turns.reports(seconds(1), start + milliseconds(999)));
  EXPECT_TRUE(turns.reports(seconds(1), start + seconds(1)));
}

TEST(BlockedTurns, AreNotedFromTheSmallerLimitOn) {
  BlockedTurns turns(seconds(1));
  EXPECT_TRUE(turns.notes(LongTurns::long_min));
  EXPECT_FALSE(turns.notes(LongTurns::long_min - Duration(1)));
  turns.set_limit(Duration(5));
  EXPECT_TRUE(turns.notes(Duration(5)));
  EXPECT_EQ(turns.limit(), Duration(5));
}

TEST(BlockedTurns, KnowTheTracesOfThisTurnAndOfTheOneBefore) {
  const auto trace_of = [](Bytes metadata) -> std::optional<TraceContext> {
    TraceContext trace;
    trace.sampled = as_text(metadata) == "sampled";
    return trace;
  };
  BlockedTurns turns(seconds(1));
  const std::string name = "work";
  const std::string* const first = &turns.begin_call(name, as_bytes(std::string_view("sampled")), trace_of);
  EXPECT_EQ(*first, "work");
  EXPECT_NE(first, &name) << "the caller's may end";
  turns.end_turn();
  const std::string* const second = &turns.begin_call(name, as_bytes(std::string_view("not")), trace_of);
  ASSERT_TRUE(turns.trace(first));
  EXPECT_TRUE(turns.trace(first)->sampled);
  ASSERT_TRUE(turns.trace(second));
  EXPECT_FALSE(turns.trace(second)->sampled);
  EXPECT_FALSE(turns.trace(&name)) << "a call without a trace";
  EXPECT_FALSE(turns.trace(nullptr));
  turns.end_turn();
  EXPECT_EQ(&turns.begin_call("other", {}, trace_of), first) << "its place is used again";
}

// Counts the rounds until the poller has its turn, with so many sources.
int rounds_of(SourceTurns& turns, int sources) {
  for (int rounds = 1;; ++rounds) {
    for (int i = 0; i < sources; ++i) turns.count_poll();
    if (turns.end_round(sources != 0)) return rounds;
  }
}

TEST(SourceTurns, ThePollerHasATurnBehindSomeRoundsOrManyPolls) {
  SourceTurns turns;
  EXPECT_EQ(rounds_of(turns, 0), 1) << "without sources, each turn is the poller's";
  EXPECT_EQ(rounds_of(turns, 1), 16);
  EXPECT_EQ(rounds_of(turns, 1), 16) << "counted anew";
  EXPECT_EQ(rounds_of(turns, 10), 7);
  EXPECT_EQ(rounds_of(turns, 1000), 1);
  turns.let_poller();
  EXPECT_EQ(rounds_of(turns, 1), 1);
}

}  // namespace
}  // namespace hawser::exec
