#include "rpc/port/memory_queue.h"

#include <algorithm>
#include <utility>

namespace hawser::rpc {
namespace {

constexpr auto place_is_empty = [](const auto& place) { return place.waiter == nullptr; };

}  // namespace

bool MemoryQueue::add(MemoryWaiter& waiter) {
  const std::ptrdiff_t empty = std::ranges::count_if(waiting_, place_is_empty);
  if (waiting_.size() - static_cast<std::size_t>(empty) == waiting_max) return false;
  waiting_.push_back({&waiter, loop_.now()});
  if (!timer_.running()) timer_.start(loop_, loop_.after(interval));
  return true;
}

void MemoryQueue::remove(const MemoryWaiter& waiter) noexcept {
  passed(waiter);
  const auto place = std::ranges::find(waiting_, &waiter, &Place::waiter);
  if (place == waiting_.end()) return;
  if (looking_) {
    place->waiter = nullptr;
  } else {
    waiting_.erase(place);
  }
}

// Whoever goes on executes commands, which may end others, and add others or itself.
void MemoryQueue::look() noexcept {
  looking_ = true;
  const std::size_t count = waiting_.size();
  for (std::size_t i = 0; i < count; ++i) {
    MemoryWaiter* const waiter = std::exchange(waiting_[i].waiter, nullptr);
    if (waiter == nullptr || waiter->try_to_receive(false)) continue;
    if (ahead_ == nullptr) {
      ahead_ = waiter;
      ahead_since_ = loop_.now();
      if (waiter->try_to_receive(true)) continue;
      ahead_ = nullptr;
    }
    waiting_[i].waiter = waiter;
  }
  looking_ = false;
  std::erase_if(waiting_, place_is_empty);
  if (waiting_.empty()) return;
  timer_.start(loop_, loop_.after(interval));
  const Time since = std::max(ahead_since_, waiting_.front().since);
  if (ahead_ != nullptr && loop_.now() - since >= patience) ahead_->end_late();
}

}  // namespace hawser::rpc
