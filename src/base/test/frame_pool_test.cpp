#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/task.h"

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
