#include "heap/frame_pool.h"

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

#include "hawser/task.h"

namespace hawser {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool is_pooled = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool is_pooled = false;
#else
constexpr bool is_pooled = true;
#endif
#else
constexpr bool is_pooled = true;
#endif

// Frames are freed until the thread has ended. So the pool has no destructor; AtThreadEnd empties it.
static_assert(std::is_trivially_destructible_v<FramePool>);
constinit thread_local FramePool pool_of_thread;

}  // namespace

const bool FramePool::pooled = is_pooled;

struct FramePool::AtThreadEnd {
  ~AtThreadEnd() {
    FramePool& pool = local();
    pool.clear();
    pool.set_owned(0);
    pool.state_ = State::ended;
  }
};

FramePool& FramePool::local() noexcept { return pool_of_thread; }

void* FramePool::allocate(std::size_t bytes) {
  const std::size_t index = (bytes - 1) / class_bytes;
  if (index >= class_count) return ::operator new(bytes);
  FreeFrame* const frame = free_[index];
  if (frame == nullptr) [[unlikely]]
    return allocate_slowly(index);
  free_[index] = frame->next;
  set_cached(cached_bytes() - size_of(index));
  return frame;
}

void FramePool::free(void* frame, std::size_t bytes) noexcept {
  const std::size_t index = (bytes - 1) / class_bytes;
  if (index >= class_count) return ::operator delete(frame);
  const std::size_t cached = cached_bytes() + size_of(index);
  if (cached > limit_bytes_) [[unlikely]]
    return free_slowly(frame, size_of(index));
  set_cached(cached);
  free_[index] = ::new (frame) FreeFrame{free_[index]};
}

void* FramePool::allocate_slowly(std::size_t index) {
  if (FreeFrame* const frame = aged_[index]; frame != nullptr) {
    aged_[index] = frame->next;
    set_cached(cached_bytes() - size_of(index));
    return frame;
  }
  void* const made = ::operator new(size_of(index));
  if (keeps()) set_owned(owned_bytes_ + size_of(index));
  return made;
}

// The cache is full, or the frame is another thread's: then all that this thread owns is in the cache.
void FramePool::free_slowly(void* frame, std::size_t bytes) noexcept {
  ::operator delete(frame);
  set_owned(std::max(owned_bytes_ - std::min(owned_bytes_, bytes), cached_bytes()));
}

// False if the thread ends.
bool FramePool::keeps() noexcept {
  if (state_ == State::unused) {
    static thread_local AtThreadEnd end;
    static_cast<void>(end);
    state_ = State::used;
  }
  return state_ == State::used;
}

void FramePool::set_owned(std::size_t bytes) noexcept {
  owned_bytes_ = bytes;
  limit_bytes_ = std::min(bytes, cached_bytes_max);
}

bool FramePool::shrink(std::size_t frames_max) noexcept {
  std::size_t bytes = 0;
  bool left = false;
  for (std::size_t i = class_count; i-- != 0;) {
    for (; aged_[i] != nullptr && frames_max != 0; --frames_max) {
      ::operator delete(std::exchange(aged_[i], aged_[i]->next));
      bytes += size_of(i);
    }
    left |= aged_[i] != nullptr;
  }
  set_cached(cached_bytes() - bytes);
  set_owned(owned_bytes_ - bytes);
  if (left) return false;
  aged_ = std::exchange(free_, {});
  return true;
}

void FramePool::clear() noexcept {
  constexpr auto all = static_cast<std::size_t>(-1);
  shrink(all);
  shrink(all);
}

namespace detail {

void* allocate_frame(std::size_t bytes) { return is_pooled ? pool_of_thread.allocate(bytes) : ::operator new(bytes); }

void free_frame(void* frame, std::size_t bytes) noexcept {
  return is_pooled ? pool_of_thread.free(frame, bytes) : ::operator delete(frame);
}

}  // namespace detail
}  // namespace hawser
