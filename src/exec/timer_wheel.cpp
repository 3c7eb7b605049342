#include "exec/timer_wheel.h"

#include <algorithm>
#include <bit>

namespace hawser {

TimerWheel::~TimerWheel() {
  for (unsigned index = 0; index < heads_.size(); ++index) {
    while (heads_[index] != nullptr) heads_[index]->unlink();
  }
}

void TimerWheel::start(Timer& timer, Time when) noexcept {
  timer.stop();
  constexpr std::uint64_t ticks_ahead_max = (std::uint64_t{1} << (slot_bits * levels)) - 1;
  // A timer in the past fires when the wheel advances next, and not from within start().
  timer.expiry_ticks_ = std::clamp(ticks_of(when, true), now_ticks_ + 1, (now_ticks_ | ticks_ahead_max));
  insert(timer);
  ++count_;
}

// The level is the highest digit in which the expiry differs from the present time. The slot is that digit of the
// expiry.
void TimerWheel::insert(Timer& timer) noexcept {
  const std::uint64_t difference = (timer.expiry_ticks_ ^ now_ticks_) | (slots - 1);
  const unsigned level = std::min(static_cast<unsigned>(63 - std::countl_zero(difference)) / slot_bits, levels - 1);
  const unsigned shift = level * slot_bits;
  const std::uint64_t slot_ticks = timer.expiry_ticks_ >> shift;
  earliest_ticks_ = std::min(earliest_ticks_, slot_ticks << shift);
  next_ticks_ = std::min(next_ticks_, timer.expiry_ticks_);
  const unsigned slot = slot_ticks & (slots - 1);
  const unsigned index = level * slots + slot;
  Timer*& head = heads_[index];
  timer.next_ = head;
  if (head != nullptr) head->previous_ = &timer.next_;
  head = &timer;
  timer.previous_ = &head;
  timer.slot_ = static_cast<std::uint16_t>(index);
  timer.wheel_ = this;
  occupied_[level] |= std::uint64_t{1} << slot;
}

void TimerWheel::removed(Timer& timer) noexcept {
  --count_;
  next_ticks_ = unknown;
  if (heads_[timer.slot_] == nullptr) {
    occupied_[timer.slot_ >> slot_bits] &= ~(std::uint64_t{1} << (timer.slot_ & (slots - 1)));
  }
}

void Timer::unlink() noexcept {
  *previous_ = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  previous_ = nullptr;
  next_ = nullptr;
  wheel_->removed(*this);
}

Timer* TimerWheel::detach(unsigned index) noexcept {
  Timer* list = heads_[index];
  heads_[index] = nullptr;
  occupied_[index >> slot_bits] &= ~(std::uint64_t{1} << (index & (slots - 1)));
  return list;
}

// Slots below the current digit of their level belong to the digit above, so they are free. The first occupied slot
// from the current digit on is therefore the earliest, and a lower level is always earlier than a higher one.
std::optional<TimerWheel::Due> TimerWheel::next_slot() const noexcept {
  for (unsigned level = 0; level < levels; ++level) {
    if (occupied_[level] == 0) continue;
    const unsigned slot = static_cast<unsigned>(std::countr_zero(occupied_[level]));
    const unsigned shift = level * slot_bits;
    const std::uint64_t base = (now_ticks_ >> (shift + slot_bits)) << (shift + slot_bits);
    return Due{base + (std::uint64_t{slot} << shift), level * slots + slot};
  }
  return std::nullopt;
}

[[gnu::noinline]] std::uint64_t TimerWheel::find_next() const noexcept {
  const std::optional<Due> due = next_slot();
  if (!due) return never;
  // A loop that sleeps until the begin of the slot would wake once for each level of a timer.
  std::uint64_t ticks = UINT64_MAX;
  unsigned scanned = 0;
  for (const Timer* timer = heads_[due->index]; timer != nullptr; timer = timer->next_) {
    ticks = ++scanned > next_scan_max ? due->ticks : std::min(ticks, timer->expiry_ticks_);
    if (scanned > next_scan_max) break;
  }
  return ticks;
}

// Fires all timers up to `target`. Those that are not due yet move to a lower level.
std::size_t TimerWheel::fire(std::uint64_t target) {
  std::size_t fired = 0;
  for (;;) {
    const std::optional<Due> due = next_slot();
    earliest_ticks_ = due ? due->ticks : UINT64_MAX;
    if (earliest_ticks_ > target) break;
    now_ticks_ = std::max(now_ticks_, due->ticks);
    Timer* list = detach(due->index);
    if (list != nullptr) list->previous_ = &list;
    while (list != nullptr) {
      Timer& timer = *list;
      timer.unlink();
      if (timer.expiry_ticks_ <= now_ticks_) {
        ++fired;
        timer.callback_(timer);  // The callback may start or stop any timer, also timers of this list.
      } else {
        insert(timer);
        ++count_;
      }
    }
  }
  now_ticks_ = std::max(now_ticks_, target);
  return fired;
}

}  // namespace hawser
