#include "bench/results/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hawser::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

CellResult result_of(std::size_t size_bytes, unsigned concurrency, Mode mode = Mode::pipeline) {
  return {.cell = {.mode = mode, .size_bytes = size_bytes, .concurrency = concurrency},
          .seconds = 2,
          .calls = 3'000'000,
          .p50_us = 9.96,
          .p90_us = 210.4,
          .server_cpu_s = 1.5,
          .client_cpu_s = 1.8,
          .calls_at_once = concurrency};
}

TEST(TextTable, WritesARowAsTheReferenceDoes) {
  TextTable table;
  const std::string lines = table.add(result_of(128, 256));
  EXPECT_THAT(lines, HasSubstr("tcp, pipeline, spin"));
  EXPECT_THAT(lines, HasSubstr("| Request size | Concurrency | Throughput (Gb/s) |"));
  for (const char* column :
       {" 128B |", " 256 |", " 1.54 |", " 10.0 |", " 210 |", " 1,500,000 |", " 0.50 |", " 0.60 |"}) {
    EXPECT_THAT(lines, HasSubstr(column));
  }
}

TEST(TextTable, NamesASizeOnce) {
  TextTable table;
  table.add(result_of(4096, 1));
  const std::string second = table.add(result_of(4096, 4));
  EXPECT_THAT(second, Not(HasSubstr("4K")));
  EXPECT_THAT(second, Not(HasSubstr("Request size")));
  EXPECT_THAT(table.add(result_of(8192, 1)), HasSubstr("8K"));
}

TEST(TextTable, BeginsAnewWithAnotherMode) {
  TextTable table;
  table.add(result_of(4096, 1));
  const std::string other = table.add(result_of(4096, 1, Mode::connections));
  EXPECT_THAT(other, HasSubstr("tcp, connections, spin"));
  EXPECT_THAT(other, HasSubstr("4K"));
}

TEST(TextTable, SaysWhenFewerCallsWereInFlight) {
  TextTable table;
  CellResult result = result_of(8 << 20, 256, Mode::connections);
  result.calls_at_once = 64;
  EXPECT_THAT(table.add(result), HasSubstr(" 256 (64) |"));
}

TEST(TextTable, HasNoProcessorTimePerCallWithoutCalls) {
  TextTable table;
  CellResult result = result_of(128, 1);
  result.calls = 0;
  EXPECT_THAT(table.add(result), HasSubstr(" - |"));
}

TEST(TextTable, SeparatesThousands) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999.4), "999");
  EXPECT_EQ(with_thousands(1000), "1,000");
  EXPECT_EQ(with_thousands(1'533'744), "1,533,744");
}

}  // namespace
}  // namespace hawser::bench
