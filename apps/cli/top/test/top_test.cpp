#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "cli/top/sample.h"

namespace hawser::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

json status_page(std::uint64_t calls, std::uint64_t errors) {
  return {{"methods",
           {{{"method", "shop/Order"},
             {"calls", calls},
             {"errors", errors},
             {"in_flight", 2},
             {"p50", 0.0000125},
             {"p90", 0.02},
             {"p99", 1.5}},
            {{"method", "shop/Idle"}, {"calls", 7}, {"p50", "-"}}}},
          {"server", {{"status", "serving"}, {"calls", calls}, {"calls in flight", 3}, {"connections open", 250}}}};
}

// An empty row takes three bytes of a page and more than a hundred of a sample.
TEST(Top, RowsBeyondTheLimitAreLeftOut) {
  const json rows(top_rows_max + 1, json::object());
  TopSample sample;
  ASSERT_TRUE(add_status(sample, {{"methods", rows}, {"server", json::object()}}));
  ASSERT_TRUE(add_connections(sample, {{"connections", rows}}));
  ASSERT_TRUE(add_loops(sample, {{"loops", rows}}));
  EXPECT_EQ(sample.methods.size(), top_rows_max);
  EXPECT_EQ(sample.connections.size(), top_rows_max);
  EXPECT_EQ(sample.loops.size(), top_rows_max);
}

TEST(Top, RatesAreThoseBetweenTwoSamples) {
  TopSample before;
  TopSample now;
  ASSERT_TRUE(add_status(before, status_page(100, 4)));
  ASSERT_TRUE(add_status(now, status_page(300, 5)));
  ASSERT_TRUE(add_connections(before, {{"connections", {{{"id", "0.1.1"}, {"sent", 1000}}}}}));
  ASSERT_TRUE(
      add_connections(now, {{"connections", {{{"id", "0.1.1"}, {"sent", 5000}}, {{"id", "0.2.1"}, {"sent", 20}}}}}));
  add_rates(now, before, 2);
  EXPECT_EQ(now.calls_rate, 100);
  EXPECT_EQ(now.methods[0].calls_rate, 100);
  EXPECT_EQ(now.methods[0].errors_rate, 0.5);
  EXPECT_EQ(now.methods[1].calls_rate, 0);
  EXPECT_EQ(now.connections[0].sent_rate, 2000);
  EXPECT_EQ(now.connections[1].sent_rate, 10);
  // The server has been started again.
  TopSample later;
  ASSERT_TRUE(add_status(later, status_page(10, 0)));
  add_rates(later, now, 2);
  EXPECT_EQ(later.calls_rate, 0);
  EXPECT_EQ(later.methods[0].errors_rate, 0);
}

TEST(Top, SortsByTheOrder) {
  TopSample sample;
  sample.methods = {{.name = "slow", .calls = 1, .p99 = 2.0},
                    {.name = "busy", .calls_rate = 5, .calls = 10},
                    {.name = "faulty", .calls = 3, .errors = 2},
                    {.name = "old", .calls = 100}};
  const auto first = [&](TopOrder order) {
    sort(sample, order);
    return sample.methods[0].name;
  };
  EXPECT_EQ(first(TopOrder::rate), "busy");
  EXPECT_EQ(sample.methods[1].name, "old");
  EXPECT_EQ(first(TopOrder::calls), "old");
  EXPECT_EQ(first(TopOrder::errors), "faulty");
  EXPECT_EQ(first(TopOrder::latency), "slow");
}

TEST(Top, OtherPagesAreRecognised) {
  for (const json& page :
       {json("text"), json(1), json(nullptr), json::object(), json::array(), json({{"methods", 1}, {"server", 1}}),
        json({{"methods", json::array()}}), json::parse("no json", nullptr, false)}) {
    TopSample sample;
    EXPECT_FALSE(add_status(sample, page)) << page;
    EXPECT_FALSE(add_connections(sample, page)) << page;
    EXPECT_FALSE(add_loops(sample, page)) << page;
  }
}

TEST(Top, ValuesOfWrongTypesAreHarmless) {
  TopSample sample;
  EXPECT_TRUE(
      add_status(sample, {{"methods", {1, {{"method", 5}, {"calls", "x"}, {"errors", -1}, {"in_flight", 1e300}}}},
                          {"server", {{"calls", json::array()}}}}));
  ASSERT_EQ(sample.methods.size(), 1U);
  EXPECT_EQ(sample.methods[0].name, "");
  EXPECT_EQ(sample.methods[0].errors, 0U);
  EXPECT_GT(sample.methods[0].in_flight, 0U);
  add_rates(sample, sample, 0);
  EXPECT_FALSE(to_lines(sample, "a", {}).empty());
}

TEST(Top, LinesFitIntoAnySize) {
  TopSample sample;
  ASSERT_TRUE(add_status(sample, status_page(1'000'000'000, 5)));
  for (int i = 0; i < 300; ++i) {
    sample.methods.push_back({.name = "m\xc3\xbc" + std::string(100, 'x') + std::to_string(i)});
    sample.connections.push_back({.id = std::to_string(i), .peer = "10.0.0.1:5"});
    sample.loops.push_back({.number = static_cast<std::uint64_t>(i)});
  }
  for (const std::size_t columns : {1U, 10U, 80U, 300U}) {
    for (const std::size_t rows : {1U, 5U, 10U, 11U, 24U, 200U}) {
      const std::vector<std::string> lines = to_lines(sample, "127.0.0.1:1", {columns, rows});
      EXPECT_LE(lines.size(), rows);
      for (const std::string& line : lines) {
        EXPECT_TRUE(is_utf8(line)) << line;
        EXPECT_LE(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }),
                  static_cast<std::ptrdiff_t>(columns));
      }
    }
  }
}

TEST(Top, LinesShowWhatTheSampleHas) {
  TopSample sample;
  ASSERT_TRUE(add_status(sample, status_page(300, 5)));
  sample.methods[0].calls_rate = 12.5;
  sample.connections = {{.peer = "10.0.0.1:5", .protocol = "hawser", .transport = "rdma", .sent_rate = 2048}};
  sample.loops = {{.number = 0, .busy_percent = 12.34, .tick_p99 = 0.002}};
  std::string all;
  for (const std::string& line : to_lines(sample, "127.0.0.1:1", {})) all += line + "\n";
  EXPECT_THAT(all, AllOf(HasSubstr("127.0.0.1:1  serving"), HasSubstr("250 connections"), HasSubstr("shop/Order"),
                         HasSubstr(" 12.5 "), HasSubstr(" 12us"), HasSubstr(" 20.0ms"), HasSubstr(" 1.50s"),
                         HasSubstr("rdma"), HasSubstr("2.0K"), HasSubstr("249 more connections"), HasSubstr("12.3%")));
}

TEST(Top, TextsOfTheServerDoNotReachTheTerminal) {
  TopSample sample;
  sample.status = "a\x1b[2J\n\x80";
  sample.methods = {{.name = "b\x1b[31m\r\n\xff\xc2\x9b"
                             "31m"}};
  sample.connections = {{.peer = "c\x1b", .protocol = "\n", .transport = "\x7f"}};
  for (const std::string& line : to_lines(sample, "d\x1b]0;title\x07", {})) {
    EXPECT_THAT(line, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\n")), Not(HasSubstr("\xc2\x9b"))));
    EXPECT_TRUE(is_utf8(line));
  }
  EXPECT_THAT(to_json(sample), AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\n")), Not(HasSubstr("\xc2\x9b"))));
}

}  // namespace
}  // namespace hawser::cli
