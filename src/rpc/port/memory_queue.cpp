#include "rpc/port/memory_queue.h"

#include <utility>

namespace hawser::rpc {

bool MemoryQueue::add(MemoryWaiter& waiter) {
  if (waiting_.size() == waiting_max) return false;
  waiting_.reserve(waiting_max);
  waiting_.push_back({&waiter, loop_.now()});
  if (!timer_.running()) timer_.start(loop_, loop_.after(interval));
  return true;
}

void MemoryQueue::remove(const MemoryWaiter& waiter) noexcept {
  if (ahead_ == &waiter) ahead_ = nullptr;
  for (Place& place : waiting_) {
    if (place.waiter == &waiter) place.waiter = nullptr;
  }
}

// Whoever goes on executes commands, which may end others, and add others or itself.
void MemoryQueue::look() noexcept {
  if (ahead_ != nullptr && !ahead_->holds_message()) ahead_ = nullptr;
  const std::size_t count = waiting_.size();
  for (std::size_t i = 0; i < count; ++i) {
    MemoryWaiter* const waiter = std::exchange(waiting_[i].waiter, nullptr);
    if (waiter == nullptr || waiter->try_to_receive(false)) continue;
    if (ahead_ == nullptr) {
      ahead_ = waiter;
      waiter->try_to_receive(true);
    } else if (loop_.now() - waiting_[i].since >= patience) {
      waiter->end_waiting();
    } else {
      waiting_[i].waiter = waiter;
    }
  }
  std::erase_if(waiting_, [](const Place& place) { return place.waiter == nullptr; });
  if (!waiting_.empty()) timer_.start(loop_, loop_.after(interval));
}

}  // namespace hawser::rpc
