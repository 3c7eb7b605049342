#include "kv/log/log_rewriting.h"

#include <gtest/gtest.h>

namespace hawser::kv {
namespace {

TEST(LogRewriting, IsDueWhenTheFileHasDoubled) {
  const LogRewriting large(1000, 64);
  EXPECT_FALSE(large.due(1999));
  EXPECT_TRUE(large.due(2000));
  const LogRewriting small(10, 64);
  EXPECT_FALSE(small.due(63)) << "short files stay";
  EXPECT_TRUE(small.due(64));
}

TEST(LogRewriting, AddsEntriesAndIsCompletedByTheWriter) {
  LogRewriting rewriting(100, 0);
  EXPECT_FALSE(rewriting.running());
  rewriting.begin();
  EXPECT_TRUE(rewriting.adds_entries());
  EXPECT_TRUE(rewriting.running());
  EXPECT_FALSE(rewriting.due(1000)) << "one at a time";
  EXPECT_TRUE(rewriting.take_first());
  EXPECT_FALSE(rewriting.take_first()) << "the second part does not begin a replacement";
  rewriting.finish();
  EXPECT_FALSE(rewriting.adds_entries());
  EXPECT_TRUE(rewriting.finishing());
  EXPECT_FALSE(rewriting.due(1000));
  rewriting.succeed(300);
  EXPECT_FALSE(rewriting.running());
  EXPECT_EQ(rewriting.count(), 1U);
  EXPECT_EQ(rewriting.base_bytes(), 300U);
  EXPECT_FALSE(rewriting.due(599));
  EXPECT_TRUE(rewriting.due(600));
}

TEST(LogRewriting, IsTriedAgainWhenTheFileHasDoubledAfterAFailure) {
  LogRewriting rewriting(100, 0);
  rewriting.begin();
  rewriting.cursor = 7;
  rewriting.pieces.append([](std::string& out) { out += "abc"; });
  rewriting.fail(400);
  EXPECT_TRUE(rewriting.failed());
  EXPECT_FALSE(rewriting.running());
  EXPECT_FALSE(rewriting.take_first());
  EXPECT_TRUE(rewriting.pieces.empty());
  EXPECT_FALSE(rewriting.due(799));
  EXPECT_TRUE(rewriting.due(800));
  rewriting.begin();
  EXPECT_EQ(rewriting.cursor, 0U) << "from the first entry";
  rewriting.finish();
  rewriting.fail(900);
  EXPECT_FALSE(rewriting.running());
  rewriting.begin();
  rewriting.finish();
  rewriting.succeed(500);
  EXPECT_FALSE(rewriting.failed());
  EXPECT_EQ(rewriting.count(), 1U);
}

TEST(LogRewriting, LeavesAReplacementThatTheWriterCompletes) {
  LogRewriting rewriting(100, 0);
  rewriting.begin();
  rewriting.abandon();
  EXPECT_FALSE(rewriting.running());
  rewriting.begin();
  rewriting.finish();
  rewriting.abandon();
  EXPECT_TRUE(rewriting.finishing());
}

}  // namespace
}  // namespace hawser::kv
