#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "exec/late_timers.h"
#include "hawser/time.h"

namespace hawser::exec {

// Remembers the turns of a loop that lasted long. The time of a loop stands still within a turn, so a timeout that
// begins late in such a turn has passed in part or in whole when the turn ends, before anything was sent. Who counts
// timeouts from Loop::now() adds the length of the turn when a timeout has passed, and not when it begins: so only
// timeouts that pass have a cost. docs/decisions/0103. Loop's thread only.
class LongTurns {
 public:
  static constexpr Duration long_min = LateTimers::late_min;
  static constexpr std::size_t kept = 64;  // Turns before the last ones count as short.

  // Loop::after() sets the time of the loop forward within a turn. Returns how far it has been set forward in this
  // turn.
  Duration advance(Time from, Time to) noexcept {
    if (!goes_on_ || last().end != from) {
      if (goes_on_) last().end = from;  // A poll has read the clock since, and delivers input: this is the next turn.
      goes_on_ = true;
      add({from, to});
    }
    last().end = to;
    return to - last().begin;
  }

  // A poll has ended the turn: the time of the loop was `before` in front of the poll, and is `now` behind it. Returns
  // the end of the turn. It is before `now` if after() has set the time forward while the poll delivered input, which
  // belongs to the next turn.
  Time end(Time before, Time now) noexcept {
    if (goes_on_ && last().begin > before) {
      const Turn next = last();
      if (next.begin - before >= long_min && length(before) == Duration::zero()) {
        last() = {before, next.begin};
        add(next);
      }
      return next.begin;
    }
    const bool same = std::exchange(goes_on_, false) && last().end >= before;
    if (same) {
      last().end = now;
    } else if (now - before >= long_min) {
      add({before, now});
    }
    return now;
  }

  // How long the turn in which the time was `begin` lasted from then on. Zero if it was not long.
  Duration length(Time begin) const noexcept {
    const auto found =
        std::ranges::find_if(turns_, [begin](const Turn& turn) { return turn.begin <= begin && begin < turn.end; });
    return found == turns_.end() ? Duration::zero() : found->end - begin;
  }

 private:
  struct Turn {
    Time begin{};
    Time end{};
  };
  void add(const Turn& turn) noexcept { turns_[added_++ % kept] = turn; }
  Turn& last() noexcept { return turns_[(added_ - 1) % kept]; }

  std::array<Turn, kept> turns_{};  // They do not overlap.
  std::size_t added_ = 0;
  bool goes_on_ = false;  // The last one is not over: after() has read the clock.
};

}  // namespace hawser::exec
