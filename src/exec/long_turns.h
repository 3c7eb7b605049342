#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

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

  // The time of the loop was `begin` and is `end` now. `goes_on`: the turn is not over, only the clock was read.
  void add(Time begin, Time end, bool goes_on) noexcept { turns_[added_++ % kept] = {begin, end, goes_on}; }

  // How long the turn in which the time was `begin` lasted from then on. Zero if it was not long.
  Duration length(Time begin) const noexcept {
    Time end = begin;
    for (const Turn* turn = find(end); turn != nullptr; turn = turn->goes_on ? find(end) : nullptr) end = turn->end;
    return end - begin;
  }

 private:
  struct Turn {
    Time begin{};
    Time end{};
    bool goes_on = false;
  };
  const Turn* find(Time begin) const noexcept {
    const auto found =
        std::ranges::find_if(turns_, [begin](const Turn& turn) { return turn.begin == begin && turn.end > begin; });
    return found == turns_.end() ? nullptr : &*found;
  }

  std::array<Turn, kept> turns_{};
  std::size_t added_ = 0;
};

}  // namespace hawser::exec
