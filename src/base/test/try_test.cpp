#include "base/try.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace hawser {
namespace {

Error refusal() { return Error::of_connection(Initiator::peer, ErrorCode::overloaded, "the queue is full: wait"); }

Result<void> check(bool good) {
  if (!good) return fail(refusal());
  return {};
}

Result<std::string> name(bool good) {
  if (!good) return fail(refusal());
  return "a name that is too long for the string itself to hold";
}

Result<std::pair<int, int>> pair_of(int first, int second) { return std::pair(first, second); }

TEST(Try, ChecksAResultWithoutAValue) {
  int steps = 0;
  const auto run = [&](bool good) -> Result<int> {
    TRY(check(good));
    return ++steps;
  };
  EXPECT_EQ(run(true), 1);
  EXPECT_EQ(run(false), std::unexpected(refusal()));
  EXPECT_EQ(steps, 1);
}

TEST(Try, DropsAValueThatIsNotDeclared) {
  const auto run = [](bool good) -> Result<void> {
    TRY(name(good));
    return {};
  };
  EXPECT_TRUE(run(true));
  EXPECT_EQ(run(false).error(), refusal());
}

TEST(Try, DeclaresTheValue) {
  const auto run = [](bool good) -> Result<std::size_t> {
    TRY(const std::string copy, name(good));
    TRY(std::string&& same, name(good));
    TRY(const std::string& read_only, name(good));
    same += '!';
    return copy.size() + same.size() + read_only.size();
  };
  EXPECT_EQ(run(true), 3 * name(true)->size() + 1);
  EXPECT_EQ(run(false), std::unexpected(refusal()));
}

TEST(Try, TakesAValueThatCannotBeCopied) {
  const auto made = [](bool good) -> Result<std::unique_ptr<int>> {
    if (!good) return fail(refusal());
    return std::make_unique<int>(7);
  };
  const auto run = [&](bool good) -> Result<std::unique_ptr<int>> {
    TRY(std::unique_ptr<int> one, made(good));
    TRY(std::unique_ptr<int>&& two, made(good));
    *one += *two;
    return one;
  };
  EXPECT_EQ(**run(true), 14);
  EXPECT_EQ(run(false).error(), refusal());
}

TEST(Try, ExpressionsMayContainCommas) {
  const auto run = []() -> Result<int> {
    TRY(const auto& both, pair_of(3, 4));
    TRY((pair_of(5, 6)));
    const auto twice = [](auto one, auto two) { return pair_of(one, two); };
    TRY(const auto& given, twice.operator()<int, int>(1, 2));
    return both.first * both.second + given.first + given.second;
  };
  EXPECT_EQ(run(), 15);
}

// The name belongs to the caller, who may report the same error elsewhere.
TEST(Try, CopiesTheErrorOfAVariable) {
  Result<void> outcome = check(false);
  const auto run = [&]() -> Result<int> {
    TRY(outcome);
    return 1;
  };
  EXPECT_EQ(run().error(), refusal());
  EXPECT_EQ(outcome.error(), refusal());
}

TEST(Try, NamesTheValueOfAVariable) {
  Result<std::string> kept = name(true);
  const auto run = [&]() -> Result<const void*> {
    TRY(const std::string& seen, kept);
    return &seen;
  };
  EXPECT_EQ(run(), static_cast<const void*>(&*kept));
}

TEST(Try, IsOneStatement) {
  const auto run = [](bool checked, bool good) -> Result<int> {
    if (checked)
      TRY(check(good));
    else
      return 2;
    return 1;
  };
  EXPECT_EQ(run(false, false), 2);
  EXPECT_EQ(run(true, true), 1);
  EXPECT_EQ(run(true, false).error(), refusal());
}

}  // namespace
}  // namespace hawser
