#include "protocol/http/output_pace.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hawser::protocol::http {
namespace {

constexpr std::size_t least = OutputPace::taken_bytes_least;
constexpr Duration limit = std::chrono::seconds(10);

Time at(int seconds) { return Time(std::chrono::seconds(seconds)); }

TEST(OutputPace, AClientForWhichNothingWaitsIsNotSlow) {
  OutputPace pace;
  for (int second = 0; second < 100; second += 7) EXPECT_FALSE(pace.too_slow(0, 0, at(second), limit)) << second;
}

TEST(OutputPace, AClientThatTakesTheLeastInTimeIsNotSlow) {
  OutputPace pace;
  EXPECT_FALSE(pace.too_slow(0, 1 << 20, at(0), limit));
  EXPECT_FALSE(pace.too_slow(least - 1, 1 << 20, at(9), limit));
  EXPECT_FALSE(pace.too_slow(least, 1 << 20, at(10), limit));
  EXPECT_FALSE(pace.too_slow(2 * least - 1, 1 << 20, at(19), limit)) << "the time began again";
  EXPECT_TRUE(pace.too_slow(2 * least - 1, 1 << 20, at(20), limit));
}

TEST(OutputPace, AllThatWaitsIsEnough) {
  OutputPace pace;
  EXPECT_FALSE(pace.too_slow(0, 100, at(0), limit));
  EXPECT_FALSE(pace.too_slow(100, 0, at(10), limit));
  EXPECT_FALSE(pace.too_slow(100, 5, at(11), limit));
  EXPECT_TRUE(pace.too_slow(104, 1, at(21), limit)) << "one byte is missing";
}

}  // namespace
}  // namespace hawser::protocol::http
