#include "hawser/testing/seeds.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

namespace hawser::testing {
namespace {

// Sets a variable of the environment for one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* const name_;
};

SeedOptions quiet(std::string name = "test") {
  return {.name = std::move(name), .report = [](std::string_view) {}};
}

// Fails with each seed that is a multiple of 7.
Task<void> fails_with_multiples_of_seven(Simulation& simulation) {
  simulation.expect(simulation.seed() % 7 != 0, "the seed is a multiple of seven");
  co_await simulation.loop().sleep(std::chrono::milliseconds(1500));
}

TEST(Seeds, TheFirstFailureEndsTheRuns) {
  const SeedOutcome outcome = for_each_seed(quiet(), fails_with_multiples_of_seven);
  EXPECT_FALSE(outcome.passed());
  EXPECT_EQ(outcome.failed_seed, 7U);
  EXPECT_EQ(outcome.seeds, 7U);
  EXPECT_TRUE(outcome.report.contains("test: seed 7 fails after 1.50")) << outcome.report;
  EXPECT_TRUE(outcome.report.contains(": the seed is a multiple of seven")) << outcome.report;
  EXPECT_TRUE(outcome.report.contains("HAWSER_TEST_SEED=test:7 ")) << outcome.report;
  EXPECT_TRUE(outcome.report.contains("testing_test")) << "the command of this program is missing: " << outcome.report;
  EXPECT_FALSE(outcome.report.contains("ended differently")) << outcome.report;
}

TEST(Seeds, AllPass) {
  SeedOptions options = quiet();
  options.first = 8;
  options.count = 6;
  const SeedOutcome outcome = for_each_seed(options, fails_with_multiples_of_seven);
  EXPECT_TRUE(outcome);
  EXPECT_EQ(outcome.seeds, 6U);
  EXPECT_TRUE(outcome.report.empty());
}

TEST(Seeds, TheEnvironmentChoosesASeedOfOneTest) {
  const Variable seed("HAWSER_TEST_SEED", "test:14");
  const SeedOutcome chosen = for_each_seed(quiet(), fails_with_multiples_of_seven);
  EXPECT_EQ(chosen.failed_seed, 14U);
  EXPECT_EQ(chosen.seeds, 1U);
  const SeedOutcome other = for_each_seed(quiet("other"), fails_with_multiples_of_seven);
  EXPECT_TRUE(other);
  EXPECT_EQ(other.seeds, 0U);
}

TEST(Seeds, TheEnvironmentChoosesASeedOfEachTest) {
  const Variable seed("HAWSER_TEST_SEED", "21");
  EXPECT_EQ(for_each_seed(quiet("other"), fails_with_multiples_of_seven).failed_seed, 21U);
}

TEST(Seeds, TheEnvironmentChoosesTheirNumber) {
  const Variable count("HAWSER_TEST_SEEDS", "3");
  EXPECT_EQ(for_each_seed(quiet(), fails_with_multiples_of_seven).seeds, 3U);
}

TEST(Seeds, AnythingElseInTheEnvironmentIsRefused) {
  const Variable count("HAWSER_TEST_SEEDS", "many");
  EXPECT_THROW(static_cast<void>(for_each_seed(quiet(), fails_with_multiples_of_seven)), std::invalid_argument);
}

TEST(Seeds, AnExceptionFails) {
  const SeedOutcome outcome = for_each_seed(quiet(), [](Simulation&) -> Task<void> {
    throw std::runtime_error("from the body");
    co_return;
  });
  EXPECT_EQ(outcome.failed_seed, 1U);
  EXPECT_TRUE(outcome.report.contains("exception: from the body")) << outcome.report;
}

TEST(Seeds, ABodyThatIsStuckFails) {
  const SeedOutcome outcome = for_each_seed(quiet(), [](Simulation&) -> Task<void> { co_await std::suspend_always(); });
  EXPECT_TRUE(outcome.report.contains("stuck at 0.000000 s")) << outcome.report;
}

TEST(Seeds, TheTestFrameworkMayNoteTheFailure) {
  SeedOptions options = quiet();
  int calls = 0;
  options.failed = [&calls] { return ++calls == 3; };
  const SeedOutcome outcome = for_each_seed(options, [](Simulation&) -> Task<void> { co_return; });
  EXPECT_EQ(outcome.failed_seed, 3U);
  EXPECT_TRUE(outcome.report.contains("test framework")) << outcome.report;
}

TEST(Seeds, ATestThatDependsOnMoreThanItsSeedIsReported) {
  int runs = 0;
  const SeedOutcome outcome = for_each_seed(quiet(), [&runs](Simulation& simulation) -> Task<void> {
    simulation.expect(false, "run " + std::to_string(++runs));
    co_return;
  });
  EXPECT_TRUE(outcome.report.contains("ended differently")) << outcome.report;
}

}  // namespace
}  // namespace hawser::testing
