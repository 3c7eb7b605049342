#include "exec/loop_statistics.h"

namespace hawser::exec {

std::string blocked_text(Duration blocked, Duration blocked_max, const std::string* work) {
  const auto ms = [](Duration time) { return std::to_string(time / std::chrono::milliseconds(1)) + " ms"; };
  return "the loop did nothing else for " + ms(blocked) + " (LoopOptions::blocked_max is " + ms(blocked_max) + "): " +
         (work == nullptr ? std::string("a coroutine, a timer or posted work has blocked it: use Loop::offload()")
                          : "the last call that began was of " + *work +
                                ": register handlers that block with HandlerOptions::offload") +
         ". Other programs that use all processors have the same effect";
}

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
