#include "protocol/http/output_pace.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hawser::protocol::http {
namespace {

constexpr std::size_t pace_least = OutputPace::taken_bytes_least;
constexpr Duration pace_limit = std::chrono::seconds(10);

Time at_second(int seconds) { return Time(std::chrono::seconds(seconds)); }

TEST(OutputPace, AClientForWhichNothingWaitsIsNotSlow) {
  OutputPace pace;
  for (int second = 0; second < 100; second += 7)
    EXPECT_FALSE(pace.too_slow(0, 0, at_second(second), pace_limit)) << second;
}

TEST(OutputPace, AClientThatTakesTheLeastInTimeIsNotSlow) {
  OutputPace pace;
  EXPECT_FALSE(pace.too_slow(0, 1 << 20, at_second(0), pace_limit));
  EXPECT_FALSE(pace.too_slow(pace_least - 1, 1 << 20, at_second(9), pace_limit));
  EXPECT_FALSE(pace.too_slow(pace_least, 1 << 20, at_second(10), pace_limit));
  EXPECT_FALSE(pace.too_slow(2 * pace_least - 1, 1 << 20, at_second(19), pace_limit)) << "the time began again";
  EXPECT_TRUE(pace.too_slow(2 * pace_least - 1, 1 << 20, at_second(20), pace_limit));
}

TEST(OutputPace, AllThatWaitsIsEnough) {
  OutputPace pace;
  EXPECT_FALSE(pace.too_slow(0, 100, at_second(0), pace_limit));
  EXPECT_FALSE(pace.too_slow(100, 0, at_second(10), pace_limit));
  EXPECT_FALSE(pace.too_slow(100, 5, at_second(11), pace_limit));
  EXPECT_TRUE(pace.too_slow(104, 1, at_second(21), pace_limit)) << "one byte is missing";
}

}  // namespace
}  // namespace hawser::protocol::http
