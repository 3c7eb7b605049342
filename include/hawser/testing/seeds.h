#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/testing/simulation.h"

namespace hawser::testing {

struct SeedOptions {
  // Names the test in messages and in HAWSER_TEST_SEED. Letters, digits and underscores.
  std::string name = "test";
  std::uint64_t first = 1;  // Seeds first, first + 1, ... are run.
  std::uint64_t count = 100;
  SimulationOptions simulation = {};
  // Returns whether the test framework has noted a failure in this test. Called after each seed. With GoogleTest:
  // `[] { return ::testing::Test::HasFailure(); }`. Null: only exceptions and Simulation::expect() count.
  std::function<bool()> failed = {};
  // Receives the report of a failed seed. Null: it is written to standard error.
  std::function<void(std::string_view text)> report = {};
};

struct SeedOutcome {
  std::uint64_t seeds = 0;                        // Number of seeds that were run.
  std::optional<std::uint64_t> failed_seed = {};  // The first seed that failed.
  std::string report = {};                        // Failures of that seed, the log, and the command.
  bool passed() const noexcept { return !failed_seed; }
  explicit operator bool() const noexcept { return passed(); }
};

// Runs `body` in a new Simulation for each seed, until one fails: by an exception, by Simulation::expect(), by the
// test framework, or because it cannot end. The report has the command that repeats the seed. That seed is then run
// once more; the report says so if it ends differently. `body` is called once for each seed and creates everything that
// it uses, because state of an earlier seed would make a run depend on more than its seed.
//
// The environment chooses seeds: HAWSER_TEST_SEED=<name>:<seed> runs one seed of the test of that name and no seed of
// other tests; HAWSER_TEST_SEED=<seed> runs one seed of every test; HAWSER_TEST_SEEDS=<count> replaces `count`. A value
// that is not a number throws std::invalid_argument.
SeedOutcome for_each_seed(const SeedOptions& options, const std::function<Task<void>(Simulation&)>& body);

}  // namespace hawser::testing
