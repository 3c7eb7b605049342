#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "hawser/loop.h"
#include "hawser/task.h"

namespace hawser::exec {

// The answer of another loop to work that was posted there. Shared by both: either may end first.
template <class T>
struct LoopAnswer {
  T value{};  // Written by the other loop before `there`.
  std::atomic<bool> there{false};
};

// Waits on the loop `here`, at most for `wait_max`. False if the other loop has not answered.
template <class T>
Task<bool> arrives(Loop& here, std::shared_ptr<LoopAnswer<T>> answer, Duration wait_max) {
  const Time end = here.after(wait_max);
  while (!answer->there.load(std::memory_order_acquire)) {
    if (here.now() >= end) co_return false;
    co_await here.sleep(std::chrono::microseconds(200));
  }
  co_return true;
}

}  // namespace hawser::exec
