#include "exec/ready_queue.h"

#include <algorithm>
#include <new>

#include "base/misuse.h"

namespace hawser::exec {
namespace {

using Handles = std::vector<std::coroutine_handle<>>;

// Removes a coroutine from the list. The search begins at `next`, the position behind the last one found: coroutines
// that were resumed together are often destroyed in the same order, and many of them must not take quadratic time.
bool take_back(Handles& list, std::size_t begin, std::size_t& next, std::coroutine_handle<> waiting) noexcept {
  const auto at = [&list](std::size_t index) { return list.begin() + static_cast<std::ptrdiff_t>(index); };
  const std::size_t middle = std::clamp(next, begin, list.size());
  auto found = std::find(at(middle), list.end(), waiting);
  if (found == list.end()) {
    found = std::find(at(begin), at(middle), waiting);
    if (found == at(middle)) return false;
  }
  *found = std::noop_coroutine();
  next = static_cast<std::size_t>(found - list.begin()) + 1;
  return true;
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
  resuming_.reserve(reserved);
}

void ReadyQueue::forget(std::coroutine_handle<> waiting) noexcept {
  if (take_back(ready_, 0, forgotten_, waiting)) return;
  take_back(resuming_, resumed_, forgotten_, waiting);
}

bool ReadyQueue::run() {
  if (ready_.empty()) return false;
  if (!resuming_.empty()) {
    misuse("Loop::run() is called from within a task of the same loop; co_await the task instead");
  }
  resuming_.swap(ready_);
  for (resumed_ = 0; resumed_ < resuming_.size();) resuming_[resumed_++].resume();
  longest_ = std::max(longest_, resuming_.size());
  resuming_.clear();
  resumed_ = 0;
  return true;
}

// Twice the longest batch, so that a list which grows by doubling is not made again in each period.
void ReadyQueue::shrink() noexcept {
  const std::size_t wanted = std::max(reserved, 2 * longest_);
  longest_ = 0;
  limit_room(ready_, wanted);
  if (resuming_.empty()) limit_room(resuming_, wanted);
}

}  // namespace hawser::exec
