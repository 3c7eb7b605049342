#include "base/allocator_trim.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "base/frame_pool.h"
#include "base/idle_memory.h"
#include "base/test/resident_bytes.h"
#include "hawser/task.h"

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

TEST(IdleMemory, RequestsATrimAfterABurst) {
  if (!FramePool::pooled) GTEST_SKIP() << "frames are not pooled with the address sanitizer";
  std::thread([] {
    AllocatorTrim trim;
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

}  // namespace
}  // namespace hawser
