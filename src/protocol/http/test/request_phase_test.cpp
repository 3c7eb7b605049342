#include "protocol/http/request_phase.h"

#include <gtest/gtest.h>

namespace hawser::protocol::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Time phase_time(int second) { return Time(seconds(1000 + second)); }

HttpOptions phase_limits() {
  HttpOptions options;
  options.header_timeout = seconds(10);
  options.idle_timeout = seconds(75);
  options.write_timeout = seconds(60);
  return options;
}

TEST(RequestPhase, AHeadAndTheTimeBetweenRequestsAreLimited) {
  const HttpOptions options = phase_limits();
  RequestPhase phase(options, phase_time(0));
  EXPECT_TRUE(phase.is(RequestPhase::Kind::idle));
  EXPECT_EQ(phase.left(phase_time(0)), seconds(10)) << "the interval of the checks";
  EXPECT_EQ(phase.left(phase_time(70)), seconds(5));
  EXPECT_EQ(phase.left(phase_time(75)), Duration::zero());
  EXPECT_EQ(phase.left(phase_time(200)), Duration::zero());
  EXPECT_EQ(phase.enter(RequestPhase::Kind::head, phase_time(74)), seconds(10));
  EXPECT_EQ(phase.left(phase_time(80)), seconds(4));
  EXPECT_EQ(phase.left(phase_time(84)), Duration::zero());
}

TEST(RequestPhase, BodiesAndHandlersAreNot) {
  const HttpOptions options = phase_limits();
  RequestPhase phase(options, phase_time(0));
  for (const auto kind : {RequestPhase::Kind::body, RequestPhase::Kind::running}) {
    EXPECT_FALSE(phase.enter(kind, phase_time(0)));
    EXPECT_EQ(phase.left(phase_time(100'000)), seconds(10));
  }
}

TEST(RequestPhase, AClientThatReadsItsResponseIsNotIdle) {
  const HttpOptions options = phase_limits();
  RequestPhase phase(options, phase_time(0));
  phase.still_reading(phase_time(70));
  EXPECT_EQ(phase.left(phase_time(140)), seconds(5));
  phase.enter(RequestPhase::Kind::head, phase_time(140));
  phase.still_reading(phase_time(150));
  EXPECT_EQ(phase.left(phase_time(150)), Duration::zero()) << "a head that does not end";
}

// The timer of the head would be too late for the end of the idle time.
TEST(RequestPhase, ChecksComeInTimeForTheShortestLimit) {
  HttpOptions options = phase_limits();
  options.idle_timeout = milliseconds(5);
  RequestPhase phase(options, phase_time(0));
  EXPECT_EQ(phase.enter(RequestPhase::Kind::idle, phase_time(1)), milliseconds(5));
  EXPECT_EQ(phase.check_interval(), milliseconds(5));
  options.write_timeout = Duration(1);
  EXPECT_EQ(phase.check_interval(), milliseconds(1));
  EXPECT_EQ(phase.enter(RequestPhase::Kind::head, phase_time(1)), Duration(1));
  options = phase_limits();
  EXPECT_FALSE(phase.enter(RequestPhase::Kind::idle, phase_time(1)));
}

}  // namespace
}  // namespace hawser::protocol::http
