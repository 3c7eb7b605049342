#include "heap/allocator_trim.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/test/resident_bytes.h"
#include "hawser/bytes.h"
#include "hawser/task.h"
#include "heap/block_pool.h"
#include "heap/frame_pool.h"
#include "heap/idle_memory.h"
#include "heap/memory_growth.h"

namespace hawser {
namespace {

using std::chrono::seconds;

constexpr std::size_t enough = AllocatorTrim::returned_bytes_min;

TEST(AllocatorTrim, FollowsMuchReturnedMemory) {
  AllocatorTrim trim;
  EXPECT_FALSE(trim.pending());
  trim.add(enough - 1);
  EXPECT_FALSE(trim.pending());
  EXPECT_FALSE(trim.begin(Time(seconds(1))));
  trim.add(1);
  EXPECT_TRUE(trim.pending());
  EXPECT_TRUE(trim.begin(Time(seconds(1))));
  trim.run();
  EXPECT_FALSE(trim.pending());
  EXPECT_FALSE(trim.begin(Time(seconds(100))));
  EXPECT_EQ(trim.runs(), 1U);
  trim.request();
  EXPECT_TRUE(trim.begin(Time(seconds(100))));
}

TEST(AllocatorTrim, HasABoundedRate) {
  AllocatorTrim trim;
  const Time first(seconds(1));
  trim.request();
  EXPECT_TRUE(trim.begin(first));
  EXPECT_FALSE(trim.begin(first)) << "another thread runs it";
  trim.run();
  trim.request();
  EXPECT_FALSE(trim.begin(first + AllocatorTrim::pause_min - Duration(1)));
  EXPECT_TRUE(trim.pending()) << "it is delayed, and not dropped";
  EXPECT_TRUE(trim.begin(first + AllocatorTrim::pause_min));
}

// The caller of begin() could not run it, because no thread was free.
TEST(AllocatorTrim, IsDueAgainIfNobodyHasRunIt) {
  AllocatorTrim trim;
  const Time first(seconds(1));
  trim.request();
  EXPECT_TRUE(trim.begin(first));
  EXPECT_TRUE(trim.begin(first + AllocatorTrim::pause_min));
}

// A small object at the end of the heap keeps the allocator from returning what lies before it.
TEST(AllocatorTrim, ReturnsMemoryToTheSystem) {
  if (allocator_bytes().used == 0) GTEST_SKIP() << "a sanitizer has replaced the allocator";
  std::thread([] {
    constexpr std::size_t bytes = 2 * AllocatorTrim::free_bytes_min;
    constexpr std::size_t piece = 2048;
    std::vector<void*> pieces(bytes / piece);
    for (void*& one : pieces) {
      one = std::malloc(piece);
      ASSERT_NE(one, nullptr);
      std::memset(one, 1, piece);
    }
    void* const last = std::malloc(piece);
    for (void* const one : pieces) std::free(one);
    const std::size_t before = resident_bytes();
    AllocatorTrim trim;
    trim.run();
    EXPECT_LT(resident_bytes() + bytes / 2, before);
    std::free(last);
  }).join();
}

TEST(AllocatorTrim, ReadsTheMemoryOnceInItsPause) {
  static int readings;
  readings = 0;
  AllocatorTrim trim([]() noexcept -> std::size_t { return ++readings, MemoryGrowth::bytes_min - 1; });
  const Time now(seconds(1));
  trim.look_for_growth(now);
  trim.look_for_growth(now);
  trim.look_for_growth(now + MemoryGrowth::reading_pause - Duration(1));
  EXPECT_EQ(readings, 1) << "a process may have many loops";
  EXPECT_FALSE(trim.pending());
  trim.look_for_growth(now + MemoryGrowth::reading_pause);
  EXPECT_EQ(readings, 2);
  EXPECT_FALSE(trim.pending()) << "one byte less than enough";
}

TEST(AllocatorTrim, FollowsGrowthThatHasEnded) {
  AllocatorTrim trim([]() noexcept -> std::size_t { return 2 * MemoryGrowth::bytes_min; });
  Time now(seconds(1));
  trim.look_for_growth(now);
  EXPECT_TRUE(trim.pending()) << "somebody has to look again";
  EXPECT_FALSE(trim.begin(now));
  now += MemoryGrowth::reading_pause;
  trim.look_for_growth(now);
  EXPECT_TRUE(trim.begin(now));
  trim.run();
  EXPECT_FALSE(trim.pending());
  now += MemoryGrowth::reading_pause;
  trim.look_for_growth(now);
  EXPECT_FALSE(trim.pending()) << "what a trim has left is in use";
}

TEST(AllocatorTrim, WithoutReadingsNothingFollows) {
  AllocatorTrim trim([]() noexcept -> std::size_t { return 0; });
  for (Time now(seconds(1)); now < Time(seconds(100)); now += MemoryGrowth::reading_pause) trim.look_for_growth(now);
  EXPECT_FALSE(trim.pending());
}

// No cache has kept these strings.
TEST(IdleMemory, ReturnsWhatTheApplicationHasFreed) {
  if (allocator_bytes().used == 0) GTEST_SKIP() << "a sanitizer has replaced the allocator";
  std::thread([] {
    constexpr std::size_t bytes = 2 * MemoryGrowth::bytes_min;
    std::vector<std::string> strings(bytes / 4096, std::string(4000, 'x'));
    const std::string last = std::move(strings.back());
    strings.clear();
    const std::size_t before = private_resident_bytes();
    ASSERT_GT(before, bytes / 2);
    Time now{};
    AllocatorTrim trim;
    IdleMemory memory(now, idle_memory_period, &trim);
    const ThreadCaches caches = ThreadCaches::local();
    for (int periods = 0;; ++periods) {
      ASSERT_LT(periods, 1000);
      now = memory.due();
      if (memory.release(now) == IdleMemory::Released::all_trim_due) break;
      ASSERT_TRUE(memory.needed(caches));
    }
    EXPECT_LE(now, Time{} + 3 * idle_memory_period);
    trim.run();
    EXPECT_LT(private_resident_bytes() + bytes / 2, before);
    EXPECT_FALSE(trim.pending());
  }).join();
}

TEST(IdleMemory, RequestsATrimAfterABurst) {
  if (!FramePool::pooled) GTEST_SKIP() << "frames are not pooled with the address sanitizer";
  std::thread([] {
    AllocatorTrim trim([]() noexcept -> std::size_t { return 0; });
    const ThreadCaches caches = ThreadCaches::local();
    Time now{};
    IdleMemory memory(now, idle_memory_period, &trim);
    const auto rest = [&] {
      int due = 0;
      for (int steps = 0; memory.needed(caches); ++steps) {
        if (steps == 1000) return -1;
        now = memory.due();
        if (memory.release(now) != IdleMemory::Released::all_trim_due) continue;
        trim.run();
        ++due;
      }
      return due;
    };
    const auto burst = [](std::size_t bytes) {
      std::vector<void*> frames(bytes / 4096);
      for (void*& frame : frames) frame = detail::allocate_frame(4096);
      for (void* const frame : frames) detail::free_frame(frame, 4096);
    };
    burst(enough / 2);
    EXPECT_EQ(rest(), 0) << "little was returned";
    burst(enough / 2);
    EXPECT_EQ(rest(), 1) << "enough in two parts";
    burst(FramePool::cached_bytes_max);
    EXPECT_EQ(rest(), 1);
  }).join();
}

// The pool of blocks keeps them, and releases them when a period has passed without their use.
TEST(IdleMemory, MemoryOfMessagesCounts) {
  std::thread([] {
    constexpr std::size_t block_bytes = std::size_t{1} << 20;
    std::vector<Block*> blocks;
    for (std::size_t bytes = 0; bytes < enough; bytes += block_bytes) blocks.push_back(Block::allocate(block_bytes));
    for (Block* const block : blocks) block->release();
    ASSERT_GE(BlockPool::local()->cached_bytes(), enough);
    AllocatorTrim trim([]() noexcept -> std::size_t { return 0; });
    IdleMemory memory(Time{}, idle_memory_period, &trim);
    const ThreadCaches caches = ThreadCaches::local();
    bool due = false;
    for (int steps = 0; caches.shrinkable(); ++steps) {
      ASSERT_LT(steps, 1000);
      due |= memory.release(memory.due()) == IdleMemory::Released::all_trim_due;
    }
    EXPECT_TRUE(due);
  }).join();
}

}  // namespace
}  // namespace hawser
