#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "lab/model/study.h"
#include "lab/steps/ladder.h"

// Runs both studies on a real device, usually Soft-RoCE. The counts are small and all contents are verified: the tests
// check correctness, not speed.
namespace hawser::lab {
namespace {

class LabRdma : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto names = verbs_->devices();
    if (!names) GTEST_SKIP() << "no RDMA device: " << names.error().text;
    if (names->empty()) GTEST_SKIP() << "no RDMA device";
    testbed_ = Testbed::open(*verbs_, *executor_, {});
    ASSERT_TRUE(testbed_) << testbed_.error().describe();
  }

  // The device counts for all queue pairs, and may count a packet of the previous experiment after its end.
  void until_counters_settle() {
    for (int tries = 0; tries < 100; ++tries) {
      const std::uint64_t before = testbed_->receiver_not_ready();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (testbed_->receiver_not_ready() == before) return;
    }
  }

  std::shared_ptr<transport::rdma::Verbs> verbs_ = transport::rdma::system_verbs();
  std::unique_ptr<Executor> executor_ = make_executor(std::max(2u, std::thread::hardware_concurrency()));
  Result<Testbed> testbed_ = fail(ErrorCode::internal, "not opened");
};

TEST_F(LabRdma, EveryStepOfTheLadderVerifies) {
  for (const std::size_t size : {std::size_t{100}, std::size_t{65'536}}) {
    for (const LadderStep& step : ladder()) {
      for (const LadderVariant& variant : step.variants({.size_bytes = size, .count = 40, .depth = 8})) {
        const Result<LadderRun> run = variant.run(*testbed_);
        ASSERT_TRUE(run) << step.name << " " << variant.label << ", " << size << ": " << run.error().describe();
        EXPECT_EQ(run->messages, 40U) << step.name;
      }
    }
  }
}

TEST_F(LabRdma, EveryExperimentVerifiesAndCreditsKeepReceiversReady) {
  for (const StudyPoint& point : study_points({.count = 64, .threads_max = 4})) {
    StudyPoint verified = point;
    verified.plan.verify_each = true;
    verified.plan.count = std::min<std::uint64_t>(point.plan.count, 3 * point.plan.window);
    until_counters_settle();
    const Result<StudySample> sample = measure(*testbed_, verified);
    ASSERT_TRUE(sample) << point.experiment << " " << point.series << " at " << point.x << ": "
                        << sample.error().describe();
    if (point.plan.credits) {
      EXPECT_EQ(sample->receiver_not_ready, 0U) << point.experiment << " " << point.series << " at " << point.x;
    }
  }
}

// With few receives and no credits, the device repeats sends to receivers that are not ready, and everything arrives.
TEST_F(LabRdma, AllArrivesAtReceiversThatAreNotReady) {
  const Result<StreamResult> result = run_stream(
      *testbed_, {.count = 500, .window = 64, .recv_queue_depth = 4, .repost_batch = 1, .verify_each = true});
  ASSERT_TRUE(result) << result.error().describe();
  EXPECT_EQ(result->messages, 500U);
}

}  // namespace
}  // namespace hawser::lab
