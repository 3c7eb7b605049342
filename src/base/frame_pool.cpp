#include <array>
#include <cstddef>
#include <new>

#include "hawser/task.h"

namespace hawser::detail {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool pooled = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool pooled = false;
#else
constexpr bool pooled = true;
#endif
#else
constexpr bool pooled = true;
#endif

constexpr std::size_t class_bytes = 64;
constexpr std::size_t class_count = 64;       // Frames of up to 4 KiB are pooled.
constexpr unsigned cached_frames_max = 4096;  // Per class and thread.

struct FreeFrame {
  FreeFrame* next;
};

// The calling thread's free frames. A frame returns to the pool of the thread that frees it.
struct FramePool {
  struct Class {
    FreeFrame* head = nullptr;
    unsigned count = 0;
  };
  std::array<Class, class_count> classes;
  ~FramePool();
};

thread_local bool pool_gone = false;

FramePool::~FramePool() {
  pool_gone = true;
  for (Class& frames : classes) {
    while (frames.head != nullptr) {
      FreeFrame* frame = frames.head;
      frames.head = frame->next;
      ::operator delete(frame);
    }
  }
}

FramePool::Class* class_of(std::size_t bytes) noexcept {
  static thread_local FramePool pool;
  const std::size_t index = (bytes - 1) / class_bytes;
  if (index >= class_count || pool_gone) return nullptr;
  return &pool.classes[index];
}

}  // namespace

void* allocate_frame(std::size_t bytes) {
  if constexpr (!pooled) return ::operator new(bytes);
  if (FramePool::Class* frames = class_of(bytes); frames != nullptr) {
    if (FreeFrame* frame = frames->head; frame != nullptr) {
      frames->head = frame->next;
      --frames->count;
      return frame;
    }
    return ::operator new((bytes + class_bytes - 1) / class_bytes * class_bytes);
  }
  return ::operator new(bytes);
}

void free_frame(void* memory, std::size_t bytes) noexcept {
  if constexpr (!pooled) return ::operator delete(memory);
  if (FramePool::Class* frames = class_of(bytes); frames != nullptr && frames->count < cached_frames_max) {
    frames->head = ::new (memory) FreeFrame{frames->head};
    ++frames->count;
    return;
  }
  ::operator delete(memory);
}

}  // namespace hawser::detail
