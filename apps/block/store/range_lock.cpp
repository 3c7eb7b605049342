#include "block/store/range_lock.h"

namespace hawser::block {

bool RangeLock::blocked(std::list<Range>::iterator range) {
  for (auto earlier = ranges_.begin(); earlier != range; ++earlier) {
    const bool conflict = earlier->exclusive || range->exclusive;
    if (conflict && earlier->first < range->end && range->first < earlier->end) return true;
  }
  return false;
}

std::list<RangeLock::Range>::iterator RangeLock::add(const Range& range) {
  if (spare_.empty()) return ranges_.insert(ranges_.end(), range);
  const auto added = spare_.begin();
  *added = range;
  ranges_.splice(ranges_.end(), spare_, added);
  return added;
}

void RangeLock::remove(std::list<Range>::iterator range) noexcept {
  if (spare_.size() < spare_max) {
    spare_.splice(spare_.begin(), ranges_, range);
  } else {
    ranges_.erase(range);
  }
}

RangeLock::Held RangeLock::lock(std::uint64_t first, std::uint64_t end, Mode mode) {
  std::unique_lock lock(mutex_);
  const auto range = add({first, end, mode == Mode::exclusive});
  ++waiting_;
  released_.wait(lock, [&] { return !blocked(range); });
  --waiting_;
  return Held(*this, range);
}

RangeLock::Held RangeLock::try_lock(std::uint64_t first, std::uint64_t end, Mode mode) {
  const std::lock_guard lock(mutex_);
  const auto range = add({first, end, mode == Mode::exclusive});
  if (!blocked(range)) return Held(*this, range);
  remove(range);
  return Held();
}

void RangeLock::unlock(std::list<Range>::iterator range) noexcept {
  const std::lock_guard lock(mutex_);
  remove(range);
  if (waiting_ > 0) released_.notify_all();
}

}  // namespace hawser::block
