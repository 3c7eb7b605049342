#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>

#include "cli/lab/lab_file.h"
#include "cli/lab/page.h"
#include "cli/lab/perftest.h"
#include "cli/lab/run_project.h"
#include "cli/lab/tables.h"
#include "report/legend.h"

namespace hawser::cli::lab {
namespace {

LabFile example() {
  LabFile file{.simulated = true, .device = "sim0 to sim1", .meta = {{"date", "a day"}}};
  file.ladder.push_back({.step = 8,
                         .name = "requests reused",
                         .transfer = "write",
                         .size_bytes = 65'536,
                         .depth = 16,
                         .gbit_per_s = {78.4, 78, 2, 5},
                         .perftest_gbit_per_s = 79.8,
                         .note = "a \"note\""});
  file.study.push_back({.experiment = 'a',
                        .series = "half",
                        .x = 16,
                        .latency = true,
                        .size_bytes = 16,
                        .value = {2.1, 2.0, 0.1, 5},
                        .predicted = 2.05,
                        .bottleneck = "latency"});
  file.study.push_back({.experiment = 'd',
                        .series = "batched, 8 of 256",
                        .x = 16,
                        .credits = true,
                        .size_bytes = 16,
                        .value = {14e6, 14e6, 1e4, 5},
                        .receiver_not_ready = 3,
                        .predicted = 13.9e6,
                        .bottleneck = "message rate",
                        .perftest = 7e6});
  FittedModel fitted;
  fitted.model.latency_ns = 1825;
  fitted.determined.fill(true);
  fitted.determined[2] = false;
  file.model = fitted;
  return file;
}

TEST(LabFile, ComesBackFromItsJson) {
  const std::string text = to_json(example());
  const auto file = from_json(text);
  ASSERT_TRUE(file) << file.error();
  EXPECT_EQ(to_json(*file), text);
  EXPECT_TRUE(file->simulated);
  EXPECT_EQ(file->study[1].receiver_not_ready, 3U);
  EXPECT_EQ(file->model->model.latency_ns, 1825);
}

TEST(LabFile, OtherJsonIsRefused) {
  EXPECT_FALSE(from_json("{"));
  EXPECT_FALSE(from_json("{\"hawser_bench\": 1}"));
  EXPECT_FALSE(from_json("{\"hawser_lab\": 99}"));
}

TEST(LabFile, CsvHasALineForEachRow) {
  const std::string text = to_csv(example());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  const std::size_t fields = static_cast<std::size_t>(std::count(text.begin(), text.begin() + 300, ','));
  EXPECT_GT(fields, 16U);
}

TEST(LabTables, SayThatTheyAreSimulatedAndShowEventsBesideThePoint) {
  const LabFile file = example();
  EXPECT_NE(simulated_notice(file).find("Simulated"), std::string::npos);
  const std::string table = study_table(file, 'd');
  EXPECT_NE(table.find("1.792 Gb/s (2.00), 3 RNR"), std::string::npos) << table;
  EXPECT_EQ(study_table(file, 'h'), "");
  EXPECT_NE(ladder_line(file.ladder[0]).find("0.98"), std::string::npos);
  EXPECT_NE(model_table(*file.model).find("| L | 1825 ns |"), std::string::npos);
  EXPECT_NE(model_table(*file.model).find("bounded only"), std::string::npos);
}

// A figure in a file of its own must contain the legend of its colours.
TEST(LabFigures, AreFilesWithTheirLegends) {
  LabFile file = example();
  file.ladder.push_back(file.ladder[0]);
  file.ladder[1].label = "a label as long as labels get, polled 32, posted 1 x 16";
  const std::vector<Figure> figures = figures_of({file});
  ASSERT_EQ(figures.size(), 1U);
  EXPECT_EQ(figures[0].name, "ladder");
  const std::string drawing = report::standalone_svg(figures[0].svg, figures[0].legend);
  const report::DrawingSize before = report::size_of(figures[0].svg);
  const report::DrawingSize with_legend = report::size_of(drawing);
  EXPECT_EQ(with_legend.width, before.width);
  EXPECT_GT(with_legend.height, before.height);
  EXPECT_NE(drawing.find(">perftest at the same size and depth</text>"), std::string::npos);
  EXPECT_EQ(drawing.find("<svg"), drawing.rfind("<svg")) << "one element";
  EXPECT_NE(drawing.find("<style>"), std::string::npos);
}

TEST(LabPage, SaysWhyAStepGainsNothing) {
  LabFile file = example();
  LadderRow better = file.ladder[0];
  better.step = 12;
  better.gbit_per_s = {90, 90, 1, 5};
  LadderRow same = file.ladder[0];
  same.step = 7;
  file.ladder.insert(file.ladder.begin(), same);
  file.ladder.push_back(better);
  const std::string page = page_of({file});
  EXPECT_NE(page.find("\u00d71.00: at this size they are few beside the bytes"), std::string::npos);
  EXPECT_NE(page.find("a &quot;note&quot;"), std::string::npos);
  EXPECT_NE(page.find("\u00d71.15"), std::string::npos);
}

// A projection is not exact, so its digits are limited.
TEST(LabProjection, RangesHaveTwoSignificantDigitsAndAreRoundedOutwards) {
  EXPECT_EQ(rounded_range({43'394, 43'394}), "43 k to 44 k");
  EXPECT_EQ(rounded_range({1'533'744, 3'019'000}), "1.5 M to 3.1 M");
  EXPECT_EQ(rounded_range({996'000, 999'000}), "990 k to 1 M");
  EXPECT_EQ(rounded_range({5.61, 12.34}), "5.6 to 13");
  EXPECT_EQ(rounded_range({0.0412, 0.0455}), "0.041 to 0.046");
  EXPECT_EQ(rounded_range({120'000, 120'000}), "120 k");
  EXPECT_EQ(rounded_range({99.2, 182.6}), "99 to 190");
  EXPECT_EQ(rounded_range({1000, 1000}), "1 k");
}

TEST(LabProjection, ARowIsMadeOfRanges) {
  EXPECT_EQ(project_row({128, 1, 43'394}, {{151'234, 248'765}, {4.44, 7.77}, {5.55, 8.88}}),
            "| 128 | 1 | 150 k to 250 k | 0.15 to 0.26 | 4.4 to 7.8 | 5.5 to 8.9 | 43 k |\n");
  EXPECT_NE(project_row({128, 4, 149'130}, {}).find("| 150 k |"), std::string::npos) << "to the nearest";
}

TEST(LabProjection, ARowOfABlockStoreHasThePublishedFiguresBesideTheRanges) {
  const hawser::lab::BlockRanges ranges{{4500, 5234}, {191.2, 222.2}, {199, 260.1}};
  EXPECT_EQ(
      block_row({1, ranges, {{2600, 3700}, {270, 380}, {300, 449}}, {1.21, 1.99}},
                hawser::lab::published_block().front()),
      "| 1 | 4.5 k to 5.3 k | 190 to 230 | 190 to 270 | 2.6 k to 3.7 k | 270 to 380 | 300 to 450 | 1.2 to 2 | 4 k | "
      "2.6 k | 1.53 |\n");
}

TEST(LabProjection, OnlyTheEndsOfTheTableOfABlockStoreAreFitted) {
  const std::span<const hawser::lab::PublishedBlock> lines = hawser::lab::published_block();
  EXPECT_EQ(block_fit_row(lines.front()), "| 1 | 1.02 | 1.00 | 1.14 | 1.01 | 1.00 | 1.05 | 1.01 | fitted |\n");
  EXPECT_EQ(block_fit_row(lines[8]), "| 32 | 0.88 | 1.14 | 1.66 | 0.92 | 1.09 | 1.25 | 0.96 | predicted |\n");
}

TEST(LabProjection, TheRateOfTheLinkIsThatOfThePublishedCards) {
  EXPECT_EQ(gbit_per_s_usual(ProjectedLoad::calls), 200);
  EXPECT_EQ(gbit_per_s_usual(ProjectedLoad::block), 50);
}

TEST(Perftest, AverageIsTheFourthFigure) {
  const auto gbit = parse_perftest(
      "---------\n #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
      " 65536      1000             0.62               0.58               0.001101\n---------\n");
  ASSERT_TRUE(gbit);
  EXPECT_DOUBLE_EQ(*gbit, 0.58);
  EXPECT_FALSE(parse_perftest("Couldn't connect to 127.0.0.1:18515\n"));
}

TEST(Perftest, NamesThatAreNoneDoNotReachAShell) { EXPECT_FALSE(run_perftest({.device = "rxe0; true"})); }

}  // namespace
}  // namespace hawser::cli::lab
