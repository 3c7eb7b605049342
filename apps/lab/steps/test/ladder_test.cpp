#include "lab/steps/ladder.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "transport/sim/rdma/sim_fabric.h"

namespace hawser::lab {
namespace {

class Ladder : public ::testing::Test {
 protected:
  void use(const transport::SimParameters& parameters) {
    fabric_ = transport::SimFabric::create(parameters, 1);
    executor_ = make_sim_executor(fabric_);
    testbed_ = Testbed::open(*fabric_, *executor_, {});
  }
  void SetUp() override { use({}); }

  // Returns the throughput of the last variant of a step, in Gb/s.
  double gbit(std::size_t step, const LadderOptions& options) {
    const LadderVariant variant = ladder()[step - 1].variants(options).back();
    const Result<LadderRun> run = variant.run(*testbed_);
    EXPECT_TRUE(run) << ladder()[step - 1].name << ": " << run.error().describe();
    if (!run) return 0;
    EXPECT_EQ(run->note, "");
    return static_cast<double>(run->messages * variant.size_bytes) * 8 / run->elapsed_ns;
  }

  std::shared_ptr<transport::SimFabric> fabric_;
  std::unique_ptr<Executor> executor_;
  Result<Testbed> testbed_ = fail(ErrorCode::internal, "not opened");
};

TEST_F(Ladder, EveryStepRunsAndVerifies) {
  for (const LadderStep& step : ladder()) {
    const auto variants = step.variants({.size_bytes = 4096, .count = 64, .depth = 8});
    EXPECT_FALSE(variants.empty()) << step.name;
    for (const LadderVariant& variant : variants) {
      const Result<LadderRun> run = variant.run(*testbed_);
      ASSERT_TRUE(run) << step.name << " " << variant.label << ": " << run.error().describe();
      EXPECT_EQ(run->messages, 64U) << step.name;
      EXPECT_GT(run->elapsed_ns, 0) << step.name;
    }
  }
}

TEST_F(Ladder, LeadsFromAFewToTheWire) {
  const LadderOptions options{.size_bytes = 65'536, .count = 400, .depth = 16};
  EXPECT_LT(gbit(3, options), 0.3 * gbit(8, options)) << "one at a time, all done for each";
  EXPECT_GT(gbit(4, options), 1.5 * gbit(3, options)) << "pipelined";
  EXPECT_GT(gbit(5, options), 1.3 * gbit(4, options)) << "filled beforehand";
  EXPECT_GT(gbit(8, options), 98) << "the wire";
}

TEST_F(Ladder, ReusedRequestsWinWithSmallMessages) {
  const LadderOptions options{.size_bytes = 256, .count = 4000, .depth = 128};
  EXPECT_GT(gbit(8, options), 1.5 * gbit(7, options));
}

TEST_F(Ladder, AFailedVerificationFailsEveryStep) {
  transport::SimParameters parameters;
  parameters.corrupt_message = 64;
  for (std::size_t step = 1; step <= 11; ++step) {  // The fault does not affect reads.
    const auto variants = ladder()[step - 1].variants({.size_bytes = 4096, .count = 64, .depth = 8});
    use(parameters);
    const Result<LadderRun> run = variants.back().run(*testbed_);
    ASSERT_FALSE(run) << ladder()[step - 1].name;
    EXPECT_NE(run.error().text.find("verification failed"), std::string::npos) << run.error().text;
  }
}

TEST_F(Ladder, SaysWhenMemoryIsNotAligned) {
  const auto variants = ladder()[9].variants({.size_bytes = 4096, .count = 64, .depth = 8});
  ASSERT_EQ(variants.size(), 2U);
  EXPECT_EQ(variants[0].run(*testbed_)->note, "");
  EXPECT_EQ(variants[1].run(*testbed_)->note, "memory is not aligned to 64 B");
}

TEST_F(Ladder, StepsWithoutReuseKeepToTheirMemory) {
  const auto variants =
      ladder()[4].variants({.size_bytes = 4096, .count = 64, .depth = 8, .memory_bytes_max = 10 * 4096});
  const Result<LadderRun> run = variants[0].run(*testbed_);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->messages, 10U);
  EXPECT_NE(run->note, "");
}

}  // namespace
}  // namespace hawser::lab
