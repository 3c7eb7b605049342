// A volume when the machine loses power: what was flushed is there, and other sectors are old or new.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>

#include "block/store/test/volume_model.h"

namespace hawser::block {
namespace {

// Runs until the power is cut at a random operation, starts again, and verifies everything.
void cut_power(VolumeRun& run) {
  run.disk().fail_at(run.disk().operations() + 1 + run.random(120), EIO, true);
  for (int i = 0; i < 40 && !run.disk().failed(); ++i) {
    const Result<void> result = run.step();
    ASSERT_TRUE(result || run.disk().failed()) << result.error().text;
  }
  run.crash();
  run.disk().cut();
  // The power may be cut again while the volume is opened.
  for (int again = 0; again < 2 && run.random(3) == 0; ++again) {
    run.disk().fail_at(run.disk().operations() + 1 + run.random(20), EIO, true);
    if (!run.open()) {
      run.crash();
      run.disk().cut();
    }
  }
  run.disk().fail_never();
  const Result<void> opened = run.open();
  ASSERT_TRUE(opened) << opened.error().text;
  run.verify_all();
}

TEST(BlockVolume, ALossOfPowerLosesNothingThatWasFlushed) {
  const char* const given = std::getenv("HAWSER_BLOCK_SEEDS");
  const std::uint64_t seeds = given != nullptr ? std::strtoull(given, nullptr, 10) : 100;
  ASSERT_GT(seeds, 0U) << "HAWSER_BLOCK_SEEDS is not a number of seeds: " << given;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    VolumeRun run(seed);
    ASSERT_TRUE(run.open());
    for (int point = 0; point < 10 && !testing::Test::HasFailure(); ++point) cut_power(run);
    if (testing::Test::HasFailure()) return;
  }
}

// A server that is killed loses no write that was answered: the kernel has them.
TEST(BlockVolume, ARestartWithoutCloseLosesNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    VolumeRun run(seed);
    ASSERT_TRUE(run.open());
    for (int start = 0; start < 5; ++start) {
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(run.step());
      ASSERT_TRUE(run.open());
      run.verify_blocks();
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(BlockVolume, AStartAfterACloseReadsNoRegion) {
  VolumeRun run(1);
  ASSERT_TRUE(run.open());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(run.step());
  EXPECT_GT(run.volume()->info()->marked_regions, 0U);
  ASSERT_TRUE(run.open());
  EXPECT_GT(run.volume()->info()->recovered_blocks, 0U);
  ASSERT_TRUE(run.volume()->close());
  EXPECT_EQ(run.volume()->flush().error().application_code, ENODEV);
  ASSERT_TRUE(run.open());
  EXPECT_EQ(run.volume()->info()->recovered_blocks, 0U);
  run.verify_all();
}

// ---- Faults ----

// One operation fails, with each number in turn. Requests that succeed are right, also after a restart.
void fail_each_operation(int number) {
  for (std::uint64_t operation = 1;; ++operation) {
    SCOPED_TRACE("operation " + std::to_string(operation));
    VolumeRun run(operation % 7);
    run.disk().fail_at(run.disk().operations() + operation, number, false);
    Result<void> opened = run.open();
    if (!opened) {
      EXPECT_EQ(opened.error().application_code, number);
      ASSERT_TRUE(run.open());
    }
    for (int i = 0; i < 25; ++i) {
      const Result<void> result = run.step();
      ASSERT_TRUE(result || run.disk().failed()) << result.error().text;
    }
    const bool failed = run.disk().failed();
    run.disk().fail_never();
    run.verify_blocks();
    ASSERT_TRUE(run.open());
    run.verify_blocks();
    if (testing::Test::HasFailure()) return;
    if (!failed) {
      EXPECT_GT(operation, 60U);
      return;
    }
  }
}

TEST(BlockVolume, AnErrorOfEachOperationIsReported) { fail_each_operation(EIO); }
TEST(BlockVolume, AFullDiskAtEachOperationIsReported) { fail_each_operation(ENOSPC); }

}  // namespace
}  // namespace hawser::block
