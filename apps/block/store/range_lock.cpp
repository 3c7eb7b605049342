#include "block/store/range_lock.h"

namespace hawser::block {

bool RangeLock::blocked(std::list<Range>::iterator range) {
  for (auto earlier = ranges_.begin(); earlier != range; ++earlier) {
    const bool conflict = earlier->exclusive || range->exclusive;
    if (conflict && earlier->first < range->end && range->first < earlier->end) return true;
  }
  return false;
}

RangeLock::Held RangeLock::lock(std::uint64_t first, std::uint64_t end, Mode mode) {
  std::unique_lock lock(mutex_);
  const auto range = ranges_.insert(ranges_.end(), Range{first, end, mode == Mode::exclusive});
  ++waiting_;
  released_.wait(lock, [&] { return !blocked(range); });
  --waiting_;
  return Held(*this, range);
}

RangeLock::Held RangeLock::try_lock(std::uint64_t first, std::uint64_t end, Mode mode) {
  const std::lock_guard lock(mutex_);
  const auto range = ranges_.insert(ranges_.end(), Range{first, end, mode == Mode::exclusive});
  if (!blocked(range)) return Held(*this, range);
  ranges_.erase(range);
  return Held();
}

void RangeLock::unlock(std::list<Range>::iterator range) noexcept {
  const std::lock_guard lock(mutex_);
  ranges_.erase(range);
  if (waiting_ > 0) released_.notify_all();
}

}  // namespace hawser::block
