#include "kv/log/log_rewriting.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hawser::kv {
namespace {

using namespace std::chrono_literals;

constexpr LogRewriting::Clock::time_point rewriting_start{};

TEST(LogRewriting, IsDueWhenTheFileHasDoubled) {
  const LogRewriting large(1000, {.bytes_min = 64});
  EXPECT_FALSE(large.due(1999, rewriting_start));
  EXPECT_TRUE(large.due(2000, rewriting_start));
  const LogRewriting small(10, {.bytes_min = 64});
  EXPECT_FALSE(small.due(63, rewriting_start)) << "short files stay";
  EXPECT_TRUE(small.due(64, rewriting_start));
}

TEST(LogRewriting, AddsEntriesAndIsCompletedByTheWriter) {
  LogRewriting rewriting(100, {.bytes_min = 0});
  EXPECT_FALSE(rewriting.running());
  rewriting.begin();
  EXPECT_TRUE(rewriting.adds_entries());
  EXPECT_TRUE(rewriting.running());
  EXPECT_FALSE(rewriting.due(1000, rewriting_start)) << "one at a time";
  EXPECT_TRUE(rewriting.take_first());
  EXPECT_FALSE(rewriting.take_first()) << "the second part does not begin a replacement";
  rewriting.finish();
  EXPECT_FALSE(rewriting.adds_entries());
  EXPECT_TRUE(rewriting.finishing());
  EXPECT_FALSE(rewriting.due(1000, rewriting_start));
  rewriting.succeed(300, rewriting_start);
  EXPECT_FALSE(rewriting.running());
  EXPECT_EQ(rewriting.count(), 1U);
  EXPECT_EQ(rewriting.base_bytes(), 300U);
  EXPECT_FALSE(rewriting.due(599, rewriting_start));
  EXPECT_TRUE(rewriting.due(600, rewriting_start));
}

TEST(LogRewriting, IsTriedAgainWhenTheFileHasDoubledAfterAFailure) {
  LogRewriting rewriting(100, {.bytes_min = 0});
  rewriting.begin();
  rewriting.cursor = 7;
  rewriting.pieces.append([](std::string& out) { out += "abc"; });
  rewriting.fail(400, "no space", rewriting_start);
  EXPECT_EQ(rewriting.error(), "no space");
  EXPECT_FALSE(rewriting.running());
  EXPECT_FALSE(rewriting.take_first());
  EXPECT_TRUE(rewriting.pieces.empty());
  EXPECT_FALSE(rewriting.due(799, rewriting_start + 1h));
  EXPECT_TRUE(rewriting.due(800, rewriting_start));
  rewriting.begin();
  EXPECT_EQ(rewriting.cursor, 0U) << "from the first entry";
  rewriting.finish();
  rewriting.fail(900, "no space", rewriting_start);
  EXPECT_FALSE(rewriting.running());
  rewriting.begin();
  rewriting.finish();
  rewriting.succeed(500, rewriting_start);
  EXPECT_EQ(rewriting.error(), "");
  EXPECT_EQ(rewriting.count(), 1U);
}

TEST(LogRewriting, LeavesAReplacementThatTheWriterCompletes) {
  LogRewriting rewriting(100, {.bytes_min = 0});
  rewriting.begin();
  rewriting.abandon();
  EXPECT_FALSE(rewriting.running());
  rewriting.begin();
  rewriting.finish();
  rewriting.abandon();
  EXPECT_TRUE(rewriting.finishing());
}

TEST(LogRewriting, RepairsAFileThatHasFailedAfterPausesThatGrow) {
  LogRewriting rewriting(100, {.bytes_min = 0, .repair_pause_min = 1s, .repair_pause_max = 3s});
  rewriting.begin();
  rewriting.finish();
  auto now = rewriting_start;
  rewriting.repair(now, false);
  EXPECT_FALSE(rewriting.running()) << "the replacement of a file that fails ends with it";
  EXPECT_TRUE(rewriting.repairs());
  for (const auto pause : {1s, 2s, 3s, 3s}) {
    EXPECT_FALSE(rewriting.due(1'000'000, now + pause - 1ms)) << "its length does not count";
    now += pause;
    EXPECT_TRUE(rewriting.due(0, now));
    rewriting.begin();
    EXPECT_FALSE(rewriting.due(0, now + 1h)) << "one at a time";
    rewriting.fail(100, "no space", now);
  }
  rewriting.repair(now, false);
  EXPECT_TRUE(rewriting.due(0, now + 1s)) << "another failure begins with the shortest pause";
  rewriting.begin();
  rewriting.finish();
  rewriting.succeed(200, now);
  EXPECT_FALSE(rewriting.repairs());
  EXPECT_FALSE(rewriting.due(399, now + 1h));
  EXPECT_TRUE(rewriting.due(400, now));
}

TEST(LogRewriting, RepairsAFileThatSomebodyHasChangedAtOnce) {
  LogRewriting rewriting(100, {.bytes_min = 0, .repair_pause_min = 1s, .repair_pause_max = 3s});
  auto now = rewriting_start;
  const auto repair = [&] {
    rewriting.begin();
    rewriting.finish();
    rewriting.succeed(100, now);
  };
  rewriting.repair(now, true);
  EXPECT_TRUE(rewriting.due(0, now));
  repair();
  now += 999ms;
  rewriting.repair(now, true);
  EXPECT_FALSE(rewriting.due(0, now)) << "somebody changes it again and again";
  now += 1s;
  EXPECT_TRUE(rewriting.due(0, now));
  repair();
  now += 1s;
  rewriting.repair(now, true);
  EXPECT_TRUE(rewriting.due(0, now));
  rewriting.begin();
  rewriting.fail(100, "no space", now);
  EXPECT_FALSE(rewriting.due(0, now + 1999ms)) << "the disk does not work either";
  EXPECT_TRUE(rewriting.due(0, now + 2s));
}

}  // namespace
}  // namespace hawser::kv
