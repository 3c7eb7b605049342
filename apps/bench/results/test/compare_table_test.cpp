#include "bench/results/compare_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hawser::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

CellResult result_of(std::string system, std::uint64_t calls) {
  return {.system = std::move(system),
          .cell = {.size_bytes = 4096, .concurrency = 64},
          .seconds = 2,
          .calls = calls,
          .p50_us = 12.5,
          .p99_us = 340};
}

TEST(CompareTable, SetsSystemsUnderEachOther) {
  CompareTable table;
  const CellResult results[] = {result_of("hawser", 300'000), result_of("baseline", 400'000),
                                result_of("grpc", 30'000)};
  const std::string lines = table.add(results);
  EXPECT_THAT(lines, HasSubstr("tcp, pipeline, spin\n"));
  EXPECT_THAT(lines,
              HasSubstr("|           4K |          64 | hawser   |      150,000 |              4.92 |     12.5 |"));
  EXPECT_THAT(lines, HasSubstr("| baseline |      200,000 |              6.55 |     12.5 |      340 |    0.75 |"));
  EXPECT_THAT(lines, HasSubstr("|   10.00 |\n"));
  EXPECT_THAT(table.add(results), Not(HasSubstr("Request size")));
}

}  // namespace
}  // namespace hawser::bench
