#include "lab/model/study.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "transport/sim/rdma/sim_fabric.h"

namespace hawser::lab {
namespace {

TEST(Statistics, OfAFewValues) {
  const Statistics statistics = statistics_of({4, 1, 7});
  EXPECT_DOUBLE_EQ(statistics.mean, 4);
  EXPECT_DOUBLE_EQ(statistics.median, 4);
  EXPECT_DOUBLE_EQ(statistics.standard_deviation, 3);
  EXPECT_DOUBLE_EQ(statistics_of({1, 2}).median, 1.5);
  EXPECT_EQ(statistics_of({5}).standard_deviation, 0);
}

TEST(Study, OnlyLinesThatWereAskedFor) {
  const auto points = study_points({.experiments = "d", .series = "batched", .without_credits = false});
  ASSERT_EQ(points.size(), 10U);
  for (const StudyPoint& point : points) EXPECT_EQ(point.series, "batched, 8 of 256");
}

// Runs and verifies every point of every experiment with few messages, then fits the model to the results.
TEST(Study, RunsAndTheModelFits) {
  const auto fabric = transport::SimFabric::create({}, 1);
  const auto executor = make_sim_executor(fabric);
  const Result<Testbed> testbed = Testbed::open(*fabric, *executor, {});
  ASSERT_TRUE(testbed);
  std::vector<FitPoint> points;
  std::string letters;
  std::uint64_t not_ready_with_credits = 0;
  std::uint64_t not_ready_without = 0;
  for (const StudyPoint& point : study_points({.count = 2000, .threads_max = 8})) {
    const Result<StudySample> sample = measure(*testbed, point);
    ASSERT_TRUE(sample) << point.experiment << " " << point.series << ": " << sample.error().describe();
    EXPECT_GT(sample->message_ns, 0);
    if (letters.empty() || letters.back() != point.experiment) letters += point.experiment;
    (point.plan.credits ? not_ready_with_credits : not_ready_without) += sample->receiver_not_ready;
    if (fitted(point, sample->receiver_not_ready)) {
      points.push_back({*workload_of(point), point.latency, sample->message_ns});
    }
  }
  EXPECT_EQ(letters, "abcdefgh");
  EXPECT_EQ(not_ready_with_credits, 0U) << "credits hold";
  EXPECT_GT(not_ready_without, 0U);
  const Fit fit = fit_model(points);
  EXPECT_LT(fit.rms_relative, 0.15);
  EXPECT_NEAR(fit.model.gap_ns, 71.4, 8);
  EXPECT_NEAR(fit.model.gap_per_byte_ns, 0.08, 0.01);
  EXPECT_NEAR(fit.model.o_post_ns + fit.model.o_send_ns, 118, 12);
}

}  // namespace
}  // namespace hawser::lab
