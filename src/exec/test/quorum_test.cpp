#include "hawser/quorum.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/loop.h"

namespace hawser {
namespace {

using std::chrono::milliseconds;

class QuorumTest : public testing::Test {
 protected:
  // A task that ends after so many milliseconds, with its number if that is positive and with an error otherwise.
  Task<Result<int>> after(int ms, int number) {
    ++begun;
    most = std::max(most, ++running);
    const Result<void> slept = co_await loop.sleep(milliseconds(ms), others.get_token());
    --running;
    if (!slept) co_return fail(ErrorCode::cancelled, "stopped");
    if (number > 0) co_return number;
    co_return fail(ErrorCode::internal, "failed after " + std::to_string(ms));
  }
  // Each pair has the arguments of after().
  QuorumOutcome<int> run(const Quorum& quorum, const std::vector<std::pair<int, int>>& list) {
    std::vector<Task<Result<int>>> tasks;
    for (const auto& [ms, number] : list) tasks.push_back(after(ms, number));
    return loop.run(when_quorum(quorum, others, std::move(tasks)));
  }
  static std::string text_of(const QuorumOutcome<int>& outcome) {
    std::string text;
    for (const Result<int>& one : outcome.results) {
      text += one                                        ? std::to_string(*one)
              : one.error().code == ErrorCode::cancelled ? "c"
              : one.error().code == ErrorCode::not_sent  ? "n"
                                                         : "f";
    }
    return text;
  }

  Loop loop{std::make_unique<exec::SimPoller>(), {}};
  const Time start = loop.now();
  std::stop_source others;
  int begun = 0;
  int running = 0;
  int most = 0;
};

TEST_F(QuorumTest, IsOverWhenEnoughHaveSucceeded) {
  const auto outcome = run({.successes = 2}, {{30, 1}, {10, 2}, {1000, 3}, {20, 4}, {5, 0}});
  EXPECT_TRUE(outcome.reached);
  EXPECT_EQ(text_of(outcome), "c2c4f");
  EXPECT_EQ(outcome.successes(), 2U);
  EXPECT_EQ(running, 0) << "none is left running";
  EXPECT_LT(loop.now() - start, milliseconds(21));
}

TEST_F(QuorumTest, IsOverWhenItIsImpossible) {
  const auto outcome = run({.successes = 2}, {{10, 0}, {1000, 1}, {20, 0}});
  EXPECT_FALSE(outcome.reached);
  EXPECT_EQ(text_of(outcome), "fcf");
  EXPECT_EQ(outcome.failure().text, "failed after 10");
  EXPECT_LT(loop.now() - start, milliseconds(21));
}

TEST_F(QuorumTest, OfAllEndsWithTheFirstFailure) {
  const auto outcome = run({}, {{1000, 1}, {10, 0}, {5, 3}});
  EXPECT_FALSE(outcome.reached);
  EXPECT_EQ(text_of(outcome), "cf3");
  EXPECT_EQ(outcome.failure().text, "failed after 10") << "and not that of the one that was stopped";
  others = {};
  EXPECT_TRUE(run({}, {{2, 1}, {1, 2}}).reached);
}

TEST_F(QuorumTest, MayAllowFewerFailuresThanArePossible) {
  EXPECT_FALSE(run({.successes = 1, .failures_max = 1}, {{10, 0}, {20, 0}, {30, 1}}).reached);
  others = {};
  EXPECT_TRUE(run({.successes = 1, .failures_max = 1}, {{10, 0}, {20, 1}, {30, 0}}).reached);
  others = {};
  EXPECT_TRUE(run({.successes = 1, .failures_max = 99}, {{10, 0}, {20, 0}, {30, 1}}).reached);
}

TEST_F(QuorumTest, RunsAtMostSoManyTasks) {
  std::vector<std::pair<int, int>> list;
  for (int i = 1; i <= 9; ++i) list.emplace_back(10 + i % 3, i);
  const auto all = run({.parallel_max = 3}, list);
  EXPECT_TRUE(all.reached);
  EXPECT_EQ(text_of(all), "123456789");
  EXPECT_EQ(most, 3);
  others = {};
  begun = 0;
  const auto some = run({.successes = 2, .parallel_max = 2}, list);
  EXPECT_TRUE(some.reached);
  EXPECT_EQ(text_of(some).substr(3), "nnnnnn") << "the others never begin";
  EXPECT_LE(begun, 3);
  others = {};
  EXPECT_TRUE(run({.parallel_max = 0}, list).reached) << "as 1";
}

TEST_F(QuorumTest, OfNothingOrOfTooMuch) {
  EXPECT_TRUE(run({}, {}).reached);
  EXPECT_FALSE(run({.successes = 1}, {}).reached);
  const auto outcome = run({.successes = 3}, {{1, 1}, {1, 2}});
  EXPECT_FALSE(outcome.reached);
  EXPECT_EQ(text_of(outcome), "nn");
  EXPECT_EQ(begun, 0);
  EXPECT_EQ(run({.successes = 1}, {}).failure().text, "the group has too few tasks");
}

TEST_F(QuorumTest, PassesOnTheFirstException) {
  std::vector<Task<Result<int>>> tasks;
  tasks.push_back(after(1000, 1));
  tasks.push_back([](Loop& on) -> Task<Result<int>> {
    co_await on.sleep(milliseconds(1));
    throw std::runtime_error("thrown");
  }(loop));
  EXPECT_THROW(loop.run(when_quorum({.successes = 1}, others, std::move(tasks))), std::runtime_error);
  EXPECT_EQ(running, 0);
  EXPECT_LT(loop.now() - start, milliseconds(100)) << "the other one was stopped";
}

TEST_F(QuorumTest, MayHaveResultsWithoutAValue) {
  std::vector<Task<Result<void>>> tasks;
  for (int i = 0; i < 3; ++i) tasks.push_back([]() -> Task<Result<void>> { co_return Result<void>(); }());
  const auto outcome = loop.run(when_quorum({.successes = 2}, others, std::move(tasks)));
  EXPECT_TRUE(outcome.reached);
  EXPECT_EQ(outcome.successes(), 2U) << "the third one has not begun";
}

}  // namespace
}  // namespace hawser
