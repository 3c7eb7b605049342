#include "hawser/testing/seeds.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/what_of.h"
#include "testing/seconds.h"

namespace hawser::testing {
namespace {

std::uint64_t number(const char* variable, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument("hawser: " + std::string(variable) + "=" + std::string(text) + " is not a number");
  }
  return value;
}

struct SeedRange {
  std::uint64_t first = 1;
  std::uint64_t count = 0;
};

// Returns the seeds that the options and the environment choose.
SeedRange choose(const SeedOptions& options) {
  SeedRange range{options.first, options.count};
  if (const char* count = std::getenv("HAWSER_TEST_SEEDS")) range.count = number("HAWSER_TEST_SEEDS", count);
  const char* const chosen = std::getenv("HAWSER_TEST_SEED");
  if (chosen == nullptr) return range;
  std::string_view text = chosen;
  const std::size_t colon = text.rfind(':');
  const bool other = colon != std::string_view::npos && text.substr(0, colon) != options.name;
  if (colon != std::string_view::npos) text.remove_prefix(colon + 1);
  return {number("HAWSER_TEST_SEED", text), other ? 0U : 1U};
}

std::string in_quotes(std::string_view word) {
  bool plain = !word.empty();
  for (const char c : word) {
    plain = plain && (std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("_-+=./:,@%").contains(c));
  }
  if (plain) return std::string(word);
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// Returns the command line of this process, as a shell reads it.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string words{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::string text;
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find('\0', begin), words.size());
    text += " " + in_quotes(std::string_view(words).substr(begin, end - begin));
    begin = end + 1;
  }
  return text.empty() ? " <this program>" : text;
}

// Result of one seed.
struct SeedRun {
  std::vector<std::string> failures;
  std::vector<std::string> log;
  std::uint64_t trace = 0;
  Duration time{};
  bool noted = false;  // The test framework has noted a failure.

  bool failed() const noexcept { return noted || !failures.empty(); }
};

SeedRun run_seed(std::uint64_t seed, const SeedOptions& options, const std::function<Task<void>(Simulation&)>& body) {
  SeedRun result;
  Simulation simulation(seed, options.simulation);
  std::string thrown;
  try {
    Task<void> task = body(simulation);
    simulation.run(std::move(task));
  } catch (const RunFailed& failure) {
    thrown = failure.what();
  } catch (const std::exception& exception) {
    thrown = "exception: " + std::string(what_of(exception));
  } catch (...) {
    thrown = "exception of another type than std::exception";
  }
  result.failures = simulation.failures();
  if (!thrown.empty()) result.failures.push_back(std::move(thrown));
  result.log = simulation.log_lines();
  result.trace = simulation.trace();
  result.time = simulation.elapsed();
  return result;
}

std::string describe(const SeedOptions& options, std::uint64_t seed, std::uint64_t seeds, const SeedRun& run) {
  std::string text = options.name + ": seed " + std::to_string(seed) + " fails after " + seconds(run.time) +
                     " of virtual time (seeds run: " + std::to_string(seeds) + ")\n";
  for (const std::string& failure : run.failures) text += "  " + failure + "\n";
  if (run.noted) text += "  the test framework has noted a failure\n";
  if (!run.log.empty()) text += "  end of the log:\n";
  for (const std::string& line : run.log) text += "    " + line + "\n";
  text += "  repeat it with: HAWSER_TEST_SEED=" + options.name + ":" + std::to_string(seed) + command_line() + "\n";
  return text;
}

}  // namespace

SeedOutcome for_each_seed(const SeedOptions& options, const std::function<Task<void>(Simulation&)>& body) {
  const SeedRange range = choose(options);
  SeedOutcome outcome;
  for (; outcome.seeds < range.count && outcome.passed(); ++outcome.seeds) {
    const std::uint64_t seed = range.first + outcome.seeds;
    SeedRun run = run_seed(seed, options, body);
    run.noted = options.failed && options.failed();
    if (!run.failed()) continue;
    outcome.failed_seed = seed;
    outcome.report = describe(options, seed, outcome.seeds + 1, run);
    const SeedRun again = run_seed(seed, options, body);
    if (again.trace != run.trace || again.failures != run.failures) {
      outcome.report +=
          "  a second run of this seed ended differently: the test depends on something besides the seed, such as real "
          "time, threads, addresses in memory, or state of an earlier run\n";
    }
  }
  if (outcome.passed()) return outcome;
  if (options.report) {
    options.report(outcome.report);
  } else {
    std::fputs(outcome.report.c_str(), stderr);
  }
  return outcome;
}

}  // namespace hawser::testing
