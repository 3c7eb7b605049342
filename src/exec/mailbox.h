#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "hawser/loop.h"

namespace hawser::exec {

// Passes work from other threads to a loop: many producers, one consumer, in order of arrival. Lock-free: producers
// push to a stack, which the consumer takes as a whole and reverses.
class Mailbox {
 public:
  Mailbox() noexcept = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox() {
    // The destructors of this work may post more work.
    while (!empty()) {
      for (detail::Posted* work = take(); work != nullptr;) std::exchange(work, work->next)->release();
    }
  }

  void put(std::unique_ptr<detail::Posted> work) noexcept {
    detail::Posted* added = work.release();
    added->next = head_.load(std::memory_order_relaxed);
    // Sequentially consistent with Loop's sleeping flag: either the loop sees the work, or this thread sees that the
    // loop sleeps.
    while (!head_.compare_exchange_weak(added->next, added, std::memory_order_seq_cst, std::memory_order_relaxed)) {
    }
  }

  bool empty() const noexcept { return head_.load(std::memory_order_seq_cst) == nullptr; }

  // Returns all work that has arrived, oldest first, linked by `next`. The caller calls release() on each.
  detail::Posted* take() noexcept {
    detail::Posted* newest = head_.exchange(nullptr, std::memory_order_acquire);
    detail::Posted* oldest = nullptr;
    while (newest != nullptr) {
      detail::Posted* next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }

 private:
  std::atomic<detail::Posted*> head_{nullptr};
};

}  // namespace hawser::exec
