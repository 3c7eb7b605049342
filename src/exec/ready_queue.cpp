#include "exec/ready_queue.h"

#include <algorithm>
#include <new>

#include "base/misuse.h"

namespace hawser::exec {
namespace {

using Handles = std::vector<std::coroutine_handle<>>;

bool take_at(Handles& list, std::size_t begin, std::size_t position, std::size_t& next,
             std::coroutine_handle<> waiting) noexcept {
  if (position < begin || position >= list.size() || list[position] != waiting) return false;
  list[position] = std::noop_coroutine();
  next = position + 1;
  return true;
}

// Removes the coroutine beside the last one that was removed, behind which `next` is. Coroutines that were resumed
// together are often destroyed in the same order, or in the opposite one as those that a condition has notified. Many
// of them must not take quadratic time.
bool take_beside(Handles& list, std::size_t begin, std::size_t& next, std::coroutine_handle<> waiting) noexcept {
  return take_at(list, begin, next, next, waiting) || (next >= 2 && take_at(list, begin, next - 2, next, waiting));
}

bool take_any(Handles& list, std::size_t begin, std::size_t& next, std::coroutine_handle<> waiting) noexcept {
  const auto at = [&list](std::size_t index) { return list.begin() + static_cast<std::ptrdiff_t>(index); };
  const std::size_t middle = std::clamp(next, begin, list.size());
  auto found = std::find(at(middle), list.end(), waiting);
  if (found == list.end()) {
    found = std::find(at(begin), at(middle), waiting);
    if (found == at(middle)) return false;
  }
  return take_at(list, begin, static_cast<std::size_t>(found - list.begin()), next, waiting);
}

// If there is no memory for the smaller list, the larger one stays.
void limit_room(Handles& list, std::size_t wanted) noexcept {
  if (list.capacity() <= wanted) return;
  try {
    Handles smaller;
    smaller.reserve(std::max(wanted, list.size()));
    smaller.assign(list.begin(), list.end());
    list.swap(smaller);
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace

ReadyQueue::ReadyQueue() {
  ready_.reserve(reserved);
  batch_.reserve(reserved);
}

void ReadyQueue::forget(std::coroutine_handle<> waiting) noexcept {
  static_cast<void>(
      take_beside(ready_, 0, forgotten_ready_, waiting) || take_beside(batch_, resumed_, forgotten_batch_, waiting) ||
      take_any(ready_, 0, forgotten_ready_, waiting) || take_any(batch_, resumed_, forgotten_batch_, waiting));
}

// Apart from add(), whose registers it would take up.
[[gnu::noinline]] void ReadyQueue::add_growing(std::coroutine_handle<> waiting) { ready_.push_back(waiting); }

bool ReadyQueue::run_batch() {
  if (running_) {
    if (ready_.empty()) return false;
    misuse("Loop::run() is called from within a task of the same loop; co_await the task instead");
  }
  if (batch_.empty()) {
    batch_.swap(ready_);
    forgotten_batch_ = forgotten_ready_;
    longest_ = std::max(longest_, batch_.size());
  }
  running_ = true;
  for (const std::size_t end = std::min(batch_.size(), resumed_ + resumed_at_once); resumed_ < end;) {
    batch_[resumed_++].resume();
  }
  running_ = false;
  if (resumed_ == batch_.size()) {
    batch_.clear();
    resumed_ = 0;
  }
  return true;
}

// Twice the longest batch, so that a list which grows by doubling is not made again in each period.
void ReadyQueue::shrink() noexcept {
  const std::size_t wanted = std::max(reserved, 2 * longest_);
  longest_ = 0;
  limit_room(ready_, wanted);
  limit_room(batch_, wanted);
}

}  // namespace hawser::exec
