// A volume when the machine loses power: what was flushed is there, and other sectors are old or new.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <set>

#include "block/store/test/volume_model.h"

namespace hawser::block {
namespace {

// Seeds to run: HAWSER_TEST_SEEDS, or `usual`.
std::uint64_t seeds(std::uint64_t usual) {
  const char* const given = std::getenv("HAWSER_TEST_SEEDS");
  const std::uint64_t seeds = given != nullptr ? std::strtoull(given, nullptr, 10) : usual;
  EXPECT_GT(seeds, 0U) << "HAWSER_TEST_SEEDS is not a number of seeds: " << given;
  return seeds;
}

// Runs until the power is cut at a random operation, starts again, and verifies everything.
void cut_power(VolumeRun& run, bool rot) {
  run.disk().fail_at(run.disk().operations() + 1 + run.random(120), EIO, true);
  for (int i = 0; i < 40 && !run.disk().failed(); ++i) {
    if (rot && run.random(8) == 0) run.rot();
    const Result<void> result = run.step();
    ASSERT_TRUE(result || run.disk().failed() || run.has_damage()) << result.error().text;
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

// Each seed has 10 points at which the power is cut.
void cut_power_by_seeds(std::uint64_t count, bool rot) {
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    VolumeRun run(seed);
    ASSERT_TRUE(run.open());
    for (int point = 0; point < 10 && !::testing::Test::HasFailure(); ++point) cut_power(run, rot);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(BlockVolume, ALossOfPowerLosesNothingThatWasFlushed) { cut_power_by_seeds(seeds(100), false); }
// Blocks that were known to be damaged are not good after it.
TEST(BlockVolume, ALossOfPowerHidesNoKnownDamage) { cut_power_by_seeds(seeds(50), true); }

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
      if (::testing::Test::HasFailure()) return;
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
    const std::set<std::uint64_t> damaged = run.verify_blocks();
    ASSERT_TRUE(run.open());
    EXPECT_EQ(run.verify_blocks(), damaged) << "blocks that a failed write has torn are torn after a restart";
    if (::testing::Test::HasFailure()) return;
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
