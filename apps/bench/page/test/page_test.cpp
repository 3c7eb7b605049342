#include "bench/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/page/page_data.h"
#include "bench/results/report.h"
#include "report/line_chart.h"

namespace hawser::bench {

using report::logarithmic_marks;
using report::Quantity;
using report::quantity_text;

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

CellResult result_of(std::string system, std::size_t size_bytes, unsigned concurrency, std::uint64_t calls) {
  return {.system = std::move(system),
          .cell = {.size_bytes = size_bytes, .concurrency = concurrency},
          .seconds = 1,
          .calls = calls,
          .p50_us = 10,
          .p90_us = 20,
          .p99_us = 30,
          .p999_us = 40,
          .calls_at_once = concurrency};
}

RunFile compared() {
  RunFile run{"a<b>.json", "echo", {{"cpu", "Some & other"}, {"date", "today"}}, {}};
  std::uint64_t calls = 100'001;
  for (const std::size_t size : {128u, 4096u, 1u << 20}) {
    for (const unsigned concurrency : {1u, 16u}) {
      run.results.push_back(result_of("baseline", size, concurrency, 2 * calls));
      run.results.push_back(result_of("hawser", size, concurrency, calls));
      calls += 1000;
    }
  }
  return run;
}

// Returns whether every element is closed, in order. This check is sufficient to detect a broken page.
bool well_formed(const std::string& page) {
  std::vector<std::string> open;
  std::size_t at = page.find("<html");
  while ((at = page.find('<', at)) != std::string::npos) {
    const std::size_t end = page.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = page.substr(at + 1, end - at - 1);
    at = end;
    if (tag.ends_with('/')) continue;
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  return open.empty();
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Page, IsWellFormedAndHasEveryCell) {
  const RunFile run = compared();
  const std::string page = page_of({&run, 1});
  EXPECT_TRUE(well_formed(page));
  for (const char* calls : {"100,001", "105,001", "200,002", "210,002"}) EXPECT_THAT(page, HasSubstr(calls));
  EXPECT_THAT(page, HasSubstr("a&lt;b&gt;.json"));
  EXPECT_THAT(page, HasSubstr("Some &amp; other"));
  EXPECT_EQ(count_of(page, ">0.50</td>"), 6u);  // The ratios.
  // By size for 1 and 16 in flight, by concurrency for three sizes; each for throughput and for latency.
  EXPECT_EQ(count_of(page, "<svg"), 10u);
}

TEST(Page, NeedsNothingFromElsewhere) {
  const RunFile run = compared();
  const std::string page = page_of({&run, 1});
  for (const char* reference : {"src=", "href=", "url(", "@import", "<script"})
    EXPECT_THAT(page, Not(HasSubstr(reference)));
}

TEST(Page, OfOneSystemHasNoRatios) {
  RunFile run = compared();
  std::erase_if(run.results, [](const CellResult& one) { return one.system != "hawser"; });
  const std::string page = page_of({&run, 1});
  EXPECT_TRUE(well_formed(page));
  EXPECT_THAT(page, Not(HasSubstr("twice as many")));
  EXPECT_EQ(count_of(page, "<svg"), 4u);
}

TEST(Page, OfNothingIsAPage) {
  EXPECT_TRUE(well_formed(page_of({})));
  const RunFile run{"empty.json", "echo", {}, {}};
  EXPECT_TRUE(well_formed(page_of({&run, 1})));
  RunFile failed{"failed.json", "echo", {}, {result_of("hawser", 1, 1, 0), result_of("baseline", 1, 1, 0)}};
  failed.results[0].first_error = "\"<lost>\"";
  EXPECT_TRUE(well_formed(page_of({&failed, 1})));
}

TEST(Page, HasATableOfAccessesToMemory) {
  RunFile run{"memory.json", "echo", {}, {}};
  run.memory = {{.system = "hawser",
                 .transport = "t<c>p",
                 .op = "write",
                 .priority = "bulk",
                 .block_bytes = 262144,
                 .batch = 7,
                 .depth = 4,
                 .clients = 3,
                 .gbit_per_s = 12.5,
                 .p99_us = 77},
                {.system = "sockets", .transport = "t<c>p", .op = "write", .block_bytes = 262144, .gbit_per_s = 25}};
  const std::string page = page_of({&run, 1});
  EXPECT_TRUE(well_formed(page));
  for (const char* text :
       {"write, bulk", "t&lt;c&gt;p", "256K", "3 to 1", "12.50", "25.00", "width: 50.0%", "sockets"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  EXPECT_THAT(page_of({}), Not(HasSubstr("Access to a peer's memory")));
}

TEST(PageData, TellsSystemsOfSeveralFilesApart) {
  const RunFile runs[] = {compared(), compared()};
  const std::vector<PageGroup> groups = group_runs(runs);
  ASSERT_EQ(groups.size(), 1u);
  std::vector<std::string> labels;
  for (const PageSeries& one : groups[0].series) labels.push_back(one.label);
  EXPECT_THAT(labels, ElementsAre("hawser, run 1", "hawser, run 2", "baseline, run 1", "baseline, run 2"));
  EXPECT_EQ(groups[0].ours_for(groups[0].series[3])->label, "hawser, run 2");
  EXPECT_THAT(groups[0].sizes_bytes, ElementsAre(128, 4096, 1 << 20));
  EXPECT_THAT(groups[0].concurrencies, ElementsAre(1, 16));
}

TEST(LineChart, MarksAreRoundAndEncloseTheValues) {
  EXPECT_THAT(logarithmic_marks(3, 40), ElementsAre(2, 5, 10, 20, 50));
  EXPECT_THAT(logarithmic_marks(1, 1), ElementsAre(1, 2));
  EXPECT_THAT(logarithmic_marks(10, 20), ElementsAre(10, 20));
  const std::vector<double> many = logarithmic_marks(0.0021, 93'000);
  EXPECT_NEAR(many.front(), 0.002, 1e-9);
  EXPECT_NEAR(many.back(), 100'000, 1e-3);
  EXPECT_LE(many.size(), 10u);
}

TEST(LineChart, WritesQuantitiesShort) {
  EXPECT_EQ(quantity_text(Quantity::per_second, 1'534'000), "1.5M");
  EXPECT_EQ(quantity_text(Quantity::per_second, 999'600), "1M");
  EXPECT_EQ(quantity_text(Quantity::per_second, 20'000), "20k");
  EXPECT_EQ(quantity_text(Quantity::gbit_per_s, 47.32), "47.3");
  EXPECT_EQ(quantity_text(Quantity::microseconds, 8.26), "8.3 \u00b5s");
  EXPECT_EQ(quantity_text(Quantity::microseconds, 250), "250 \u00b5s");
  EXPECT_EQ(quantity_text(Quantity::microseconds, 2'500), "2.5 ms");
  EXPECT_EQ(quantity_text(Quantity::microseconds, 3e6), "3 s");
}

TEST(RunFile, ReadsWhatTheRunWrites) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / "hawser_bench_run_file.json").string();
  Report report;
  report.results = compared().results;
  ASSERT_EQ(write_json(path, report, RunOptions{.reply = ReplyKind::ack}), "");
  const std::expected<RunFile, std::string> run = read_run_file(path);
  ASSERT_TRUE(run) << run.error();
  EXPECT_EQ(run->results.size(), 6u + 6u);
  EXPECT_EQ(run->results[0].system, "baseline");
  EXPECT_EQ(run->reply, "ack");
  EXPECT_EQ(run->name, "hawser_bench_run_file.json");

  std::ofstream(path) << "{\"meta\": {}, \"cells\": [{\"system\": \"hawser\"}]}";
  EXPECT_THAT(read_run_file(path).error(), HasSubstr("lacks a column"));
  std::ofstream(path) << "nonsense";
  EXPECT_THAT(read_run_file(path).error(), HasSubstr("is not a file of --json"));
  std::filesystem::remove(path);
  EXPECT_THAT(read_run_file(path).error(), HasSubstr("cannot read"));
}

}  // namespace
}  // namespace hawser::bench
