#pragma once

#include <cstdint>

#include "base/kernel_random.h"
#include "base/random.h"

namespace hawser {

// A random number that a peer may guess, such as for sampling. Any thread.
inline std::uint64_t quick_random() noexcept {
  thread_local Random random(kernel_random());
  return random.next();
}

}  // namespace hawser
