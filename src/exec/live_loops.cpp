#include "exec/live_loops.h"

#include <atomic>
#include <cstdlib>

namespace hawser::exec {
namespace {

// Places are reused and never freed: there are as many as loops existed at the same time.
struct LoopPlace {
  std::atomic<const Loop*> loop;
  LoopPlace* next = nullptr;
};

std::atomic<LoopPlace*> first_place{nullptr};

std::atomic<bool> exiting{false};

// exit() destroys the objects of its thread before all static objects, also those that were made later than the
// function below was registered.
thread_local bool thread_ends = false;
struct ThreadEnd {
  ~ThreadEnd() { thread_ends = true; }
};

bool replace(const Loop* before, const Loop* after) noexcept {
  for (LoopPlace* place = first_place.load(std::memory_order_acquire); place != nullptr; place = place->next) {
    const Loop* expected = before;
    if (place->loop.load(std::memory_order_relaxed) == before &&
        place->loop.compare_exchange_strong(expected, after, std::memory_order_acq_rel))
      return true;
  }
  return false;
}

}  // namespace

bool is_live_loop(const Loop& loop) noexcept {
  for (LoopPlace* place = first_place.load(std::memory_order_acquire); place != nullptr; place = place->next) {
    if (place->loop.load(std::memory_order_acquire) == &loop) return true;
  }
  return false;
}

bool process_exits() noexcept { return thread_ends || exiting.load(std::memory_order_relaxed); }

void watch_exit() noexcept {
  thread_local const ThreadEnd end{};
  // If it cannot be registered, exit() within a task of a static loop ends the process with a message.
  static const int registered = std::atexit([] { exiting.store(true, std::memory_order_relaxed); });
  static_cast<void>(registered);
}

LiveLoop::LiveLoop(const Loop& loop) : loop_(loop) {
  if (replace(nullptr, &loop)) return;
  LoopPlace* const place = new LoopPlace{&loop, first_place.load(std::memory_order_relaxed)};
  while (!first_place.compare_exchange_weak(place->next, place, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

LiveLoop::~LiveLoop() { replace(&loop_, nullptr); }

}  // namespace hawser::exec
