#include "bench/results/rtt_table.h"

#include <gmock/gmock.h>

namespace hawser::bench {
namespace {

TEST(RttTable, ALineForEachDepthAndAColumnForEachTransport) {
  std::vector<CellResult> results;
  for (const auto& [transport, us] : {std::pair("shm", 2.0), std::pair("tcp", 10.0)}) {
    for (const unsigned depth : rtt_depths) {
      CellResult one;
      one.cell = {.transport = transport, .size_bytes = rtt_size_bytes, .concurrency = depth};
      one.p50_us = us * depth;
      results.push_back(one);
    }
  }
  const std::string table = rtt_table(results);
  EXPECT_THAT(table, testing::StartsWith("| Depth | shm (us) | tcp (us) | Ratio |\n"));
  EXPECT_THAT(table, testing::HasSubstr("\n| 1 | 2.0 | 10.0 | 5.0 |\n"));
  EXPECT_THAT(table, testing::HasSubstr("\n| 64 | 128.0 | 640.0 | 5.0 |\n"));
}

}  // namespace
}  // namespace hawser::bench
