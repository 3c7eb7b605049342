#include "heap/idle_memory.h"

#include <chrono>
#include <cstddef>

#include "heap/block_pool.h"
#include "heap/frame_pool.h"
#include "heap/secret_memory.h"

namespace hawser {
namespace {

// Frames that one call returns, in about 0.1 ms, and the time until the next call if there are more.
constexpr std::size_t frames_at_once = 4096;
constexpr Duration step_pause = std::chrono::milliseconds(1);

}  // namespace

CachedMemory cached_memory_max() noexcept {
  return {.block_bytes = BlockPool::cached_bytes_max,
          .frame_bytes = FramePool::cached_bytes_max,
          .secret_bytes = SecretMemory::cached_bytes_max()};
}

ThreadCaches ThreadCaches::local() noexcept {
  ThreadCaches caches;
  caches.blocks_ = BlockPool::local();
  caches.frames_ = &FramePool::local();
  caches.secrets_ = &SecretMemory::local_cache();
  return caches;
}

CachedMemory ThreadCaches::read() const noexcept {
  CachedMemory read;
  if (blocks_ != nullptr) read.block_bytes = blocks_->cached_bytes();
  if (frames_ != nullptr) read.frame_bytes = frames_->cached_bytes();
  if (secrets_ != nullptr) read.secret_bytes = SecretMemory::cached_bytes(*secrets_);
  return read;
}

bool ThreadCaches::shrinkable() const noexcept {
  return (blocks_ != nullptr && blocks_->cached_bytes() != 0) || (frames_ != nullptr && frames_->cached_bytes() != 0);
}

IdleMemory::Released IdleMemory::release(Time now) noexcept {
  FramePool& frames = FramePool::local();
  const std::size_t frames_before = frames.cached_bytes();
  const bool all = frames.shrink(frames_at_once);
  std::size_t returned = frames_before - frames.cached_bytes();
  due_ = now + (all ? period_ : step_pause);
  if (BlockPool* const blocks = BlockPool::local(); all && blocks != nullptr) {
    const std::size_t blocks_before = blocks->cached_bytes();
    blocks->shrink();
    returned += blocks_before - blocks->cached_bytes();
  }
  if (trim_ != nullptr) trim_->add(returned);
  if (!all) return Released::part;
  if (trim_ != nullptr) trim_->look_for_growth(now);
  return trim_ != nullptr && trim_->begin(now) ? Released::all_trim_due : Released::all;
}

void release_all_idle_memory() noexcept {
  FramePool::local().clear();
  if (BlockPool* const blocks = BlockPool::local()) {
    blocks->shrink();
    blocks->shrink();
  }
  SecretMemory::release_cache();
  AllocatorTrim::of_process().request();
}

}  // namespace hawser
