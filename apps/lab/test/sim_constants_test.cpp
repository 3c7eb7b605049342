#include "lab/sim_constants.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "lab/send_receive.h"
#include "transport/sim/rdma/sim_fabric.h"

namespace hawser::lab {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::filesystem::path repository() {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path().parent_path();
}

// Returns the row of the table in docs/lab.md.
std::string table_row(const SimConstant& constant) {
  std::ostringstream row;
  row << "| `" << constant.name << "` | " << constant.value({}) << (constant.unit.empty() ? "" : " ") << constant.unit
      << " | " << to_string(constant.origin) << " | " << constant.figure << " | ";
  constant.factor() > 1 ? row << constant.factor() : row << "not varied";
  row << " |";
  return row.str();
}

TEST(SimConstants, ThePageHasARowForEach) {
  const std::string page = contents(repository() / "docs/lab.md");
  ASSERT_FALSE(page.empty()) << "docs/lab.md is not beside the sources";
  for (const SimConstant& constant : sim_constants()) {
    EXPECT_NE(page.find(table_row(constant)), std::string::npos) << "add to docs/lab.md: " << table_row(constant);
  }
}

TEST(SimConstants, TheHeaderSaysTheSameAndHasNoOthers) {
  const std::string header = contents(repository() / "src/transport/sim/rdma/sim_parameters.h");
  ASSERT_FALSE(header.empty()) << "the sources are not where they were compiled";
  const std::map<char, Origin> letters = {{'D', Origin::data_sheet},
                                          {'M', Origin::measured},
                                          {'F', Origin::fitted},
                                          {'S', Origin::fitted_together},
                                          {'A', Origin::assumed}};
  std::map<std::string, char> said;
  std::istringstream lines(header.substr(header.find("struct SimParameters {")));
  char above = 0;  // The letter of a comment on a line of its own.
  for (std::string line; std::getline(lines, line);) {
    const std::size_t comment = line.find("// ");
    const bool letter =
        comment != std::string::npos && line.size() > comment + 4 && line.substr(comment + 4, 2) == "  ";
    const bool letter_ends = comment != std::string::npos && line.size() == comment + 4;
    const char here = letter || letter_ends ? line[comment + 3] : '\0';
    const std::size_t equals = line.find(" = ");
    if (equals == std::string::npos || comment < equals) {
      above = here;
      continue;
    }
    if (line.starts_with("  bool ")) continue;  // It is a switch, not a constant.
    const std::size_t name = line.rfind(' ', equals - 1) + 1;
    said[line.substr(name, equals - name)] = here != 0 ? here : above;
    above = 0;
  }
  EXPECT_EQ(said.size(), sim_constants().size() + 1) << "all but switches and corrupt_message are in sim_constants()";
  for (const SimConstant& constant : sim_constants()) {
    const char letter = said[std::string(constant.name)];
    ASSERT_TRUE(letters.contains(letter)) << constant.name << " has no letter in sim_parameters.h";
    EXPECT_EQ(letters.at(letter), constant.origin) << constant.name;
  }
}

TEST(SimConstants, AreVariedWithinTheirUncertaintyAndTheSameBySeed) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const transport::SimParameters one = varied({}, seed);
    const transport::SimParameters same = varied({}, seed);
    const transport::SimParameters other = varied({}, seed + 1);
    EXPECT_EQ(one.link_ns, same.link_ns);
    EXPECT_NE(one.link_ns, other.link_ns);
    for (const SimConstant& constant : sim_constants()) {
      const double scale = constant.value({}) == 0 ? 1 : constant.value(one) / constant.value({});
      EXPECT_LE(scale, constant.factor() * 1.001) << constant.name;
      EXPECT_GE(scale, 0.999 / constant.factor()) << constant.name;
    }
  }
}

TEST(SimConstants, HalfTripIsTheirSum) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const transport::SimParameters parameters = seed == 0 ? transport::SimParameters{} : varied({}, seed);
    const auto fabric = transport::SimFabric::create(parameters, 1);
    const auto executor = make_sim_executor(fabric);
    const Result<Testbed> testbed = Testbed::open(*fabric, *executor, {});
    const Result<std::vector<double>> trips = run_ping_pong(*testbed, {.size_bytes = 16, .count = 50});
    ASSERT_TRUE(trips) << trips.error().describe();
    const double mean = std::accumulate(trips->begin(), trips->end(), 0.0) / static_cast<double>(trips->size());
    EXPECT_NEAR(half_trip_ns(parameters) / mean, 1, 0.05) << seed;
  }
}

}  // namespace
}  // namespace hawser::lab
