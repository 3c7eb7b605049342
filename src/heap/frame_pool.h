#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace hawser {

// The calling thread's cache of freed coroutine frames, by size class. A frame goes to the pool of the thread that
// frees it, if that thread has allocated as many bytes: a thread that only frees frames of others would keep memory
// that it never uses. The cache is bounded. All other frames are returned to the allocator.
//
// Frames that the pool has not used for a period are returned: each class has a second list, of the frames that were
// free when the period began. The first list serves first, so the frames that remain in the second one were not needed.
// This costs nothing while frames are allocated and freed.
class FramePool {
 public:
  // False with the address sanitizer, which then reports uses of frames that were freed.
  static const bool pooled;

  static constexpr std::size_t class_bytes = 64;
  static constexpr std::size_t class_count = 64;                          // Frames of up to 4 KiB are pooled.
  static constexpr std::size_t cached_bytes_max = std::size_t{32} << 20;  // Per thread.

  // Returns the calling thread's pool. Valid until the thread ends; a thread that is ending has a pool that keeps
  // nothing.
  static FramePool& local() noexcept;

  constexpr FramePool() noexcept = default;
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  void* allocate(std::size_t bytes);
  void free(void* frame, std::size_t bytes) noexcept;

  // Any thread, while the thread of the pool exists.
  std::size_t cached_bytes() const noexcept { return cached_bytes_.load(std::memory_order_relaxed); }

  // Returns frames that have been free since the previous period began to the allocator, at most `frames_max` of them.
  // Begins the next period and returns true if no more of them are left.
  bool shrink(std::size_t frames_max) noexcept;
  // Returns all frames to the allocator.
  void clear() noexcept;

 private:
  struct FreeFrame {
    FreeFrame* next;
  };
  struct AtThreadEnd;
  enum class State : unsigned char { unused, used, ended };

  // Not inlined: they would make the callers save registers on each call.
  [[gnu::noinline]] void* allocate_slowly(std::size_t index);
  [[gnu::noinline]] void free_slowly(void* frame, std::size_t bytes) noexcept;
  bool keeps() noexcept;
  void set_owned(std::size_t bytes) noexcept;
  void set_cached(std::size_t bytes) noexcept { cached_bytes_.store(bytes, std::memory_order_relaxed); }
  static constexpr std::size_t size_of(std::size_t index) noexcept { return (index + 1) * class_bytes; }

  std::array<FreeFrame*, class_count> free_{};
  std::array<FreeFrame*, class_count> aged_{};  // Free since the current period began.
  std::atomic<std::size_t> cached_bytes_{0};    // The bytes in both lists. Written by the pool's thread.
  std::size_t limit_bytes_ = 0;                 // The cache may have owned_bytes_, and at most cached_bytes_max.
  std::size_t owned_bytes_ = 0;  // Allocated by this thread, less those that it returned to the allocator.
  State state_ = State::unused;
};

}  // namespace hawser
