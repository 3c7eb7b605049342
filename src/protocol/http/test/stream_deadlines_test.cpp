#include "protocol/http/stream_deadlines.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hawser::protocol::http {
namespace {

using namespace std::chrono_literals;
using Direction = StreamDeadlines::Direction;
using Due = StreamDeadlines::Due;

constexpr Time start = Time{} + 1h;

// The first time at which something is due, and what it is.
void expect_next(const StreamDeadlines& deadlines, Time moved, Time when, Due what) {
  EXPECT_EQ(deadlines.next(moved), when);
  EXPECT_EQ(deadlines.check(when - 1ns, moved), Due::nothing);
  EXPECT_EQ(deadlines.check(when, moved), what);
}

TEST(StreamDeadlines, WithoutAWaitNothingIsDue) {
  const StreamDeadlines deadlines(10s);
  EXPECT_EQ(deadlines.next(start), Time::max());
  EXPECT_EQ(deadlines.check(start + 24h, start), Due::nothing);
}

TEST(StreamDeadlines, TheOpeningIsLimitedUntilItIsOver) {
  StreamDeadlines deadlines(10s);
  deadlines.limit_opening(start + 3s);
  expect_next(deadlines, Time::min(), start + 3s, Due::response);
  deadlines.limit_request(start + 5s);
  deadlines.on_opened();
  expect_next(deadlines, Time::min(), start + 5s, Due::response);
}

TEST(StreamDeadlines, AStandstillCountsFromTheLastByteOrTheBeginOfTheOperation) {
  StreamDeadlines deadlines(10s);
  deadlines.begin(Direction::reading, start);
  EXPECT_TRUE(deadlines.active(Direction::reading));
  EXPECT_FALSE(deadlines.active(Direction::writing));
  expect_next(deadlines, Time::min(), start + 10s, Due::standstill);
  expect_next(deadlines, start + 4s, start + 14s, Due::standstill);
  deadlines.begin(Direction::writing, start + 6s);
  expect_next(deadlines, start + 4s, start + 14s, Due::standstill);
  deadlines.end(Direction::reading);
  expect_next(deadlines, start + 4s, start + 16s, Due::standstill);
  deadlines.end(Direction::writing);
  EXPECT_EQ(deadlines.next(start), Time::max()) << "nobody waits";
}

TEST(StreamDeadlines, ATimeWithoutALimitNeverEnds) {
  StreamDeadlines deadlines(Duration::max());
  deadlines.begin(Direction::reading, start);
  EXPECT_EQ(deadlines.next(start), Time::max());
}

TEST(StreamDeadlines, TheBodyIsSentWithoutAnAnswerAfterItsTime) {
  StreamDeadlines deadlines(10s);
  EXPECT_FALSE(deadlines.awaits_continue());
  deadlines.await_continue(start + 1s);
  EXPECT_TRUE(deadlines.awaits_continue());
  EXPECT_EQ(deadlines.next(Time::min()), Time::max()) << "no write waits for it";
  deadlines.begin(Direction::writing, start);
  expect_next(deadlines, Time::min(), start + 1s, Due::body);
  deadlines.end_continue();
  EXPECT_FALSE(deadlines.awaits_continue());
  expect_next(deadlines, Time::min(), start + 10s, Due::standstill);
}

TEST(StreamDeadlines, AFailureComesBeforeTheBody) {
  StreamDeadlines deadlines(1s);
  deadlines.await_continue(start);
  deadlines.begin(Direction::writing, start);
  EXPECT_EQ(deadlines.check(start + 1s, Time::min()), Due::standstill);
  deadlines.limit_request(start + 1s);
  EXPECT_EQ(deadlines.check(start + 1s, Time::min()), Due::response);
}

}  // namespace
}  // namespace hawser::protocol::http
