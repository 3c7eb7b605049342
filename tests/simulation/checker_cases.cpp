#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/simulation/checker.h"

// The checker detects the violations for which it was written.
namespace hawser::simulation {
namespace {

Error error_of(ErrorCode code) { return Error::of_call(code, "as told"); }

TEST(SimulationChecker, LetsAGoodRunPass) {
  Checker checker;
  CallGuard call(checker, "good");
  checker.executed(call.id);
  call.replied();
  const std::uint64_t refused = checker.begin("refused");
  checker.failed(refused, error_of(ErrorCode::overloaded), false);
  {
    const CallGuard dropped(checker, "dropped");
  }
  checker.item_written(1, 100, 64);
  checker.item_read(1, 100);
  checker.retire(std::vector<std::byte>(10));
  checker.finish();
  EXPECT_TRUE(checker.violations().empty()) << checker.violations().front();
}

TEST(SimulationChecker, SeesTwoExecutions) {
  Checker checker;
  const std::uint64_t id = checker.begin("twice");
  checker.executed(id);
  EXPECT_TRUE(checker.violations().empty());
  checker.executed(id);
  EXPECT_EQ(checker.violations().size(), 1U);
}

TEST(SimulationChecker, SeesAnExecutionThatWasDenied) {
  for (const ErrorCode code : {ErrorCode::not_sent, ErrorCode::overloaded, ErrorCode::unavailable}) {
    Checker before;
    const std::uint64_t first = before.begin("before");
    before.executed(first);
    before.failed(first, error_of(code), true);
    EXPECT_EQ(before.violations().size(), 1U) << to_string(code);
    Checker after;
    const std::uint64_t second = after.begin("after");
    after.failed(second, error_of(code), true);
    after.executed(second);
    EXPECT_EQ(after.violations().size(), 1U) << to_string(code);
  }
}

TEST(SimulationChecker, SeesTwoEnds) {
  Checker checker;
  const std::uint64_t id = checker.begin("ends twice");
  checker.executed(id);
  checker.replied(id);
  checker.failed(id, error_of(ErrorCode::cancelled), false);
  EXPECT_EQ(checker.violations().size(), 1U);
}

TEST(SimulationChecker, SeesACallWithoutEnd) {
  Checker checker;
  checker.begin("waits");
  checker.finish();
  EXPECT_EQ(checker.violations(), std::vector<std::string>{"call 1 (waits): a call never ended"});
}

TEST(SimulationChecker, SeesAReplyWithoutExecution) {
  Checker checker;
  checker.replied(checker.begin("made up"));
  EXPECT_EQ(checker.violations().size(), 1U);
}

TEST(SimulationChecker, SeesAnUnknownOutcomeOfALivingConnection) {
  Checker checker;
  checker.failed(checker.begin("unknown"), error_of(ErrorCode::outcome_unknown), false);
  EXPECT_EQ(checker.violations().size(), 1U);
}

TEST(SimulationChecker, SeesAStreamBeyondItsWindow) {
  Checker checker;
  checker.item_written(1, 100, 50);
  EXPECT_TRUE(checker.violations().empty());
  checker.item_written(1, 100, 50);
  EXPECT_EQ(checker.violations().size(), 1U);
}

TEST(SimulationChecker, SeesALateWrite) {
  Checker checker;
  std::vector<std::byte> memory(100);
  std::byte* const late = memory.data() + 50;
  checker.retire(std::move(memory));
  *late = std::byte{1};
  checker.finish();
  EXPECT_EQ(checker.violations().size(), 1U);
}

TEST(SimulationChecker, TellsContentsApart) {
  const std::string mine = content(7, 1000);
  EXPECT_TRUE(is_content(7, mine));
  EXPECT_TRUE(is_content(7, std::string_view(mine).substr(0, 13)));
  EXPECT_FALSE(is_content(8, mine));
  std::string damaged = mine;
  damaged[999] = static_cast<char>(damaged[999] ^ 1);
  EXPECT_FALSE(is_content(7, damaged));
}

}  // namespace
}  // namespace hawser::simulation
