#include "exec/loop_statistics.h"

namespace hawser::exec {

void TickRecord::set_longest(std::uint64_t ns, const std::string* work) noexcept {
  longest_ns_.add(static_cast<std::int64_t>(ns - longest_ns_.get()));
  const std::lock_guard guard(lock_);
  if (work == nullptr) return longest_work_.clear();
  longest_work_.assign(*work, 0, work_bytes_max);  // Reserved: a tick allocates nothing.
}

LoopStatistics TickRecord::read() const {
  LoopStatistics all{.ticks = ticks_.get(),
                     .busy = Duration(static_cast<Duration::rep>(busy_ns_.get())),
                     .longest = Duration(static_cast<Duration::rep>(longest_ns_.get())),
                     .longest_work = {}};
  for (std::size_t i = 0; i < all.lengths.size(); ++i) all.lengths[i] = lengths_[i].get();
  const std::lock_guard guard(lock_);
  all.longest_work = longest_work_;
  return all;
}

}  // namespace hawser::exec
