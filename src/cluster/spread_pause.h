#pragma once

#include "hawser/detail/loop_access.h"
#include "hawser/time.h"

namespace hawser::cluster {

// By chance from 0.8 to 1.2 times the pause, of at most an hour, so that many clients do not come together. In a
// simulation it follows from the seed.
inline Duration spread_pause(Loop& loop, Duration pause) noexcept {
  return pause * static_cast<int>(820 + detail::LoopAccess::random(loop) % 410) / 1024;
}

}  // namespace hawser::cluster
