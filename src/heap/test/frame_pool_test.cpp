#include "heap/frame_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/task.h"
#include "heap/idle_memory.h"

namespace hawser::detail {
namespace {

TEST(FramePool, FramesOfEverySizeDoNotOverlap) {
  std::vector<std::pair<unsigned char*, std::size_t>> frames;
  for (std::size_t size = 1; size < 10'000; size += 61) {
    for (int copy = 0; copy < 2; ++copy) {
      auto* const frame = static_cast<unsigned char*>(allocate_frame(size));
      std::memset(frame, static_cast<int>(size % 251), size);
      frames.emplace_back(frame, size);
    }
  }
  for (const auto& [frame, size] : frames) {
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(frame[i], size % 251);
    free_frame(frame, size);
  }
  // Allocates the frames again, now from the pool.
  for (auto& [frame, size] : frames) {
    frame = static_cast<unsigned char*>(allocate_frame(size));
    std::memset(frame, static_cast<int>(size % 251), size);
  }
  for (const auto& [frame, size] : frames) {
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(frame[i], size % 251);
    free_frame(frame, size);
  }
}

TEST(FramePool, MoreThanItKeepsIsFreed) {
  std::set<void*> frames;
  for (int i = 0; i < 10'000; ++i) frames.insert(allocate_frame(100));
  EXPECT_EQ(frames.size(), 10'000U);
  for (void* const frame : frames) free_frame(frame, 100);
}

TEST(FramePool, FramesMayEndOnAnotherThread) {
  std::vector<void*> frames;
  std::thread([&] {
    for (int i = 0; i < 100; ++i) frames.push_back(allocate_frame(200));
  }).join();
  for (void* const frame : frames) free_frame(frame, 200);
  std::thread([&] {
    for (int i = 0; i < 100; ++i) frames[static_cast<std::size_t>(i)] = allocate_frame(200);
  }).join();
  for (void* const frame : frames) free_frame(frame, 200);
}

constexpr std::size_t burst = 20'000;
constexpr std::size_t burst_bytes = burst * 192;  // The class of 160 bytes.

std::vector<void*> allocated(std::size_t count) {
  std::vector<void*> frames(count);
  for (void*& frame : frames) frame = allocate_frame(160);
  return frames;
}
void free_all(const std::vector<void*>& frames) {
  for (void* const frame : frames) free_frame(frame, 160);
}
void on_new_thread(const auto& work) { std::thread(work).join(); }

TEST(FramePool, AFrameThatWasKeptIsUsedAgain) {
  if (!FramePool::pooled) GTEST_SKIP() << "frames are not pooled with the address sanitizer";
  on_new_thread([] {
    const FramePool& pool = FramePool::local();
    void* const frame = allocate_frame(160);
    EXPECT_EQ(pool.cached_bytes(), 0U);
    free_frame(frame, 160);
    EXPECT_EQ(pool.cached_bytes(), 192U);
    EXPECT_EQ(allocate_frame(192), frame) << "of the same class";
    EXPECT_EQ(pool.cached_bytes(), 0U);
    free_frame(frame, 192);
  });
}

TEST(FramePool, IsBounded) {
  on_new_thread([] {
    std::vector<void*> frames(2 * FramePool::cached_bytes_max / 4096);
    for (void*& frame : frames) frame = allocate_frame(4096);
    for (void* const frame : frames) free_frame(frame, 4096);
    EXPECT_EQ(FramePool::local().cached_bytes(), FramePool::pooled ? FramePool::cached_bytes_max : 0);
    // Frames that were returned to the allocator are not this thread's any more.
    free_all(allocated(1));
    EXPECT_LE(FramePool::local().cached_bytes(), FramePool::cached_bytes_max);
  });
}

TEST(FramePool, ShrinksToWhatIsUsed) {
  if (!FramePool::pooled) GTEST_SKIP() << "frames are not pooled with the address sanitizer";
  on_new_thread([] {
    constexpr auto all = static_cast<std::size_t>(-1);
    FramePool& pool = FramePool::local();
    free_all(allocated(burst));
    EXPECT_EQ(pool.cached_bytes(), burst_bytes);
    EXPECT_TRUE(pool.shrink(all));
    EXPECT_EQ(pool.cached_bytes(), burst_bytes) << "all of them were in use since the previous call";
    for (int round = 0; round < 3; ++round) free_all(allocated(10));
    EXPECT_TRUE(pool.shrink(all));
    EXPECT_EQ(pool.cached_bytes(), 10U * 192) << "ten were used at the same time";
    const std::vector<void*> used = allocated(4);
    EXPECT_TRUE(pool.shrink(all));
    EXPECT_EQ(pool.cached_bytes(), 0U) << "six were not used, and four are in use";
    free_all(used);
    EXPECT_EQ(pool.cached_bytes(), 4U * 192);
    EXPECT_TRUE(pool.shrink(all));
    EXPECT_TRUE(pool.shrink(all));
    EXPECT_EQ(pool.cached_bytes(), 0U);
  });
}

TEST(FramePool, ShrinksInSteps) {
  if (!FramePool::pooled) GTEST_SKIP() << "frames are not pooled with the address sanitizer";
  on_new_thread([] {
    FramePool& pool = FramePool::local();
    free_all(allocated(100));
    EXPECT_TRUE(pool.shrink(30)) << "nothing is old yet";
    for (const std::size_t left : {70U, 40U, 10U}) {
      EXPECT_FALSE(pool.shrink(30));
      EXPECT_EQ(pool.cached_bytes(), left * 192);
    }
    EXPECT_TRUE(pool.shrink(30));
    EXPECT_EQ(pool.cached_bytes(), 0U);
  });
}

// Another thread allocates, this one frees: it must not keep memory that it never uses.
TEST(FramePool, AThreadThatOnlyFreesKeepsNothing) {
  std::vector<void*> frames;
  on_new_thread([&] { frames = allocated(burst); });
  on_new_thread([&] {
    const FramePool& pool = FramePool::local();
    free_all(frames);
    EXPECT_EQ(pool.cached_bytes(), 0U);
    // It caches as many bytes as it has allocated itself.
    const std::vector<void*> own = allocated(10);
    std::vector<void*> others;
    on_new_thread([&] { others = allocated(30); });
    free_all(others);
    EXPECT_EQ(pool.cached_bytes(), FramePool::pooled ? 10U * 192 : 0);
    free_all(own);
    EXPECT_EQ(pool.cached_bytes(), FramePool::pooled ? 10U * 192 : 0);
  });
}

TEST(IdleMemory, ReturnsWhatABurstHasLeft) {
  on_new_thread([] {
    const ThreadCaches caches = ThreadCaches::local();
    Time now{};
    IdleMemory memory(now);
    free_all(allocated(burst));
    {
      static_cast<void>(Buffer::allocate(64 * 1024));
    }
    EXPECT_GE(caches.read().block_bytes, 64U * 1024);
    EXPECT_EQ(caches.read().frame_bytes, FramePool::pooled ? burst_bytes : 0);
    EXPECT_EQ(memory.due(), now + idle_memory_period);
    int steps = 0;
    for (; caches.shrinkable(); ++steps) {
      ASSERT_LT(steps, 20);
      now = memory.due();
      memory.release(now);
    }
    EXPECT_EQ(caches.read().frame_bytes, 0U);
    EXPECT_EQ(caches.read().block_bytes, 0U);
    EXPECT_LT(now, Time{} + 2 * idle_memory_period + std::chrono::milliseconds(20));
    if (FramePool::pooled) {
      EXPECT_EQ(steps, 6) << "one begins the period, and five return 4,096 frames each";
    }
  });
}

// The frame is freed after its thread's pool, by a thread_local object that was made before the pool.
TEST(FramePool, WorksWhileItsThreadEnds) {
  struct Late {
    ~Late() {
      if (frame != nullptr) free_frame(frame, 100);
      free_frame(allocate_frame(100), 100);
    }
    void* frame = nullptr;
  };
  std::thread([] {
    static thread_local Late late;
    late.frame = allocate_frame(100);
  }).join();
}

}  // namespace
}  // namespace hawser::detail
