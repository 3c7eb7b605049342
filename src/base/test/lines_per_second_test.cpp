#include "base/lines_per_second.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hawser {
namespace {

TEST(LinesPerSecond, EachSecondHasItsLines) {
  LinesPerSecond lines;
  for (const std::int64_t second : {0, 1, 2, 1'000'000}) {
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(lines.take(second, 20)) << second;
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(lines.take(second, 20)) << second;
  }
  EXPECT_FALSE(LinesPerSecond().take(5, 0));
}

// At the border of a second, some loops have the new second and others the old one.
TEST(LinesPerSecond, SecondsOfSeveralLoopsAreMixed) {
  LinesPerSecond lines;
  int written = 0;
  for (int i = 0; i < 1000; ++i) written += lines.take(100 + i % 2, 20) ? 1 : 0;
  // One line of second 100, and then the lines of second 101.
  EXPECT_EQ(written, 21);
  EXPECT_TRUE(lines.take(102, 20));
}

TEST(LinesPerSecond, OfSeveralThreads) {
  constexpr std::int64_t seconds_counted = 200;
  LinesPerSecond lines;
  std::atomic<unsigned> written{0};
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      for (std::int64_t second = 1; second <= seconds_counted; ++second) {
        for (int i = 0; i < 100; ++i) written += lines.take(second, 20) ? 1U : 0U;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(written, 20U * seconds_counted);
}

}  // namespace
}  // namespace hawser
