#include "cli/doctor/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace hawser::cli::doctor {
namespace {

using testing::HasSubstr;
using testing::Not;

DoctorReport sample() {
  return {{{"machine", "This machine", true, {{"machine.kernel", Severity::good, "Linux", {}}}},
           {"rdma",
            "RDMA",
            false,
            {{"rdma.device", Severity::problem, "broken \"thing\"\n\xff", "mend it"},
             {"rdma.mtu", Severity::warning, "small", "enlarge it", {}, {{"bytes", 1024}}}}}}};
}

TEST(Render, SaysWhatAndWhatToDo) {
  const std::string page = render(sample(), {});
  EXPECT_THAT(page, HasSubstr("RDMA  not usable here"));
  EXPECT_THAT(page, HasSubstr("→ mend it"));
  EXPECT_THAT(page, HasSubstr("1 problem, 1 warning."));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_THAT(render(sample(), {.colour = true}), HasSubstr("\x1b[31m"));
}

TEST(Render, NothingWrong) {
  const DoctorReport report{{sample().sections.front()}};
  EXPECT_THAT(render(report, {}), HasSubstr("Nothing is wrong."));
  EXPECT_EQ(exit_status(report), 0);
}

TEST(Render, BreaksLines) {
  DoctorReport report = sample();
  report.sections[0].findings[0].text = std::string(300, 'a') + " " + std::string(30, 'b') + " " + std::string(30, 'c');
  EXPECT_THAT(render(report, {.columns = 60}),
              HasSubstr("\n    " + std::string(30, 'b') + "\n    " + std::string(30, 'c')));
}

TEST(Render, Json) {
  const nlohmann::json page = nlohmann::json::parse(to_json(sample()));
  EXPECT_EQ(page["version"], 1);
  EXPECT_EQ(page["worst"], "problem");
  EXPECT_EQ(page["sections"][1]["name"], "rdma");
  EXPECT_EQ(page["sections"][1]["usable"], false);
  EXPECT_EQ(page["sections"][1]["findings"][1]["id"], "rdma.mtu");
  EXPECT_EQ(page["sections"][1]["findings"][1]["severity"], "warning");
  EXPECT_EQ(page["sections"][1]["findings"][1]["remedy"], "enlarge it");
  EXPECT_EQ(page["sections"][1]["findings"][1]["figures"]["bytes"], 1024);
  EXPECT_TRUE(page["sections"][1]["findings"][0]["figures"].empty());
}

TEST(Require, MakesAProblemOfWhatCannotBeUsed) {
  DoctorReport report{{{"tcp", "TCP", true, {}}, {"shm", "Shared memory", false, {}}}};
  require(report, {"tcp"});
  EXPECT_EQ(exit_status(report), 0);
  require(report, {"shm", "ucx"});
  EXPECT_EQ(report.sections[1].findings.front().id, "shm.required");
  ASSERT_EQ(report.sections.size(), 3u);
  EXPECT_EQ(report.sections[2].findings.front().id, "ucx.required");
  EXPECT_EQ(exit_status(report), 1);
}

TEST(Severities, DecideTheStatus) {
  DoctorReport report{{{"tcp", "TCP", true, {{"tcp.a", Severity::good, "a", {}}}}}};
  EXPECT_EQ(exit_status(report), 0);
  report.sections[0].findings[0].severity = Severity::note;
  EXPECT_EQ(exit_status(report), 0);
  report.sections[0].findings[0].severity = Severity::warning;
  EXPECT_EQ(exit_status(report), 1);
  report.sections[0].findings[0].severity = Severity::problem;
  EXPECT_EQ(exit_status(report), 1);
}

}  // namespace
}  // namespace hawser::cli::doctor
