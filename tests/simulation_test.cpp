#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "tests/simulation/world.h"

// Whole systems in virtual time. A seed determines each run. A failing run prints its seed; to repeat this run alone:
//   HAWSER_SIM_SEED=123 build/dev/tests/simulation_test
// HAWSER_SIM_SEEDS=10000 runs that many seeds of each profile; HAWSER_SIM_SECONDS=60 runs seeds for a minute.
namespace hawser::simulation {
namespace {

#ifdef HAWSER_SANITIZED
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// These seeds run on every machine. The seeds that follow them run as long as there is time; a sanitizer makes each of
// them several times slower.
constexpr std::uint64_t seeds_least = sanitized ? 25 : 100;
constexpr std::uint64_t seconds_by_default = 1;

std::optional<std::uint64_t> number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

std::string report(const Profile& profile, const Outcome& outcome) {
  std::ostringstream text;
  text << "seed " << outcome.seed << ", profile " << profile.name << ":\n";
  for (const std::string& violation : outcome.violations) text << "  " << violation << '\n';
  text << "replay: HAWSER_SIM_SEED=" << outcome.seed << " build/dev/tests/simulation_test --gtest_filter='*"
       << profile.name << "'";
  return text.str();
}

class Simulation : public testing::TestWithParam<Profile> {};

TEST_P(Simulation, KeepsItsPromises) {
  const Profile& profile = GetParam();
  const std::optional<std::uint64_t> only = number_of("HAWSER_SIM_SEED");
  const std::optional<std::uint64_t> asked = number_of("HAWSER_SIM_SEEDS");
  const std::uint64_t first = only.value_or(1);
  const std::uint64_t least = only ? 1 : asked.value_or(seeds_least);
  const bool until_time_is_up = !only && !asked;
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(number_of("HAWSER_SIM_SECONDS").value_or(seconds_by_default));
  Checker::Counts sum;
  std::uint64_t count = 0;
  while (count < least || (until_time_is_up && std::chrono::steady_clock::now() < end)) {
    const std::uint64_t seed = first + count++;
    const Outcome outcome = simulate(profile, seed);
    ASSERT_TRUE(outcome.violations.empty()) << report(profile, outcome);
    sum.begun += outcome.counts.begun;
    sum.replied += outcome.counts.replied;
    sum.dropped += outcome.counts.dropped;
    for (const auto& [code, times] : outcome.counts.errors) sum.errors[code] += times;
  }
  RecordProperty("calls", static_cast<int>(sum.begun));
  std::ostringstream text;
  text << count << " seeds, " << sum.begun << " calls, " << sum.replied << " replies, " << sum.dropped << " dropped";
  for (const auto& [code, times] : sum.errors) text << ", " << times << ' ' << to_string(code);
  std::puts(text.str().c_str());
}

TEST_P(Simulation, ReplaysFromItsSeed) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U}) {
    const Outcome first = simulate(GetParam(), seed);
    const Outcome second = simulate(GetParam(), seed);
    const Outcome other = simulate(GetParam(), seed + 1000);
    EXPECT_EQ(first.trace, second.trace) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_NE(first.trace, other.trace) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, Simulation, testing::ValuesIn(profiles),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace hawser::simulation
