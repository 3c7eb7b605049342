#pragma once

#include <atomic>
#include <cstdint>

#include "hawser/time.h"

namespace hawser {

// Sleeps while `word` is `value`, for at most `timeout`. May return early.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, Duration timeout) noexcept;
// Wakes a thread that sleeps. `word` may have been destroyed: a thread that sleeps at this address for another reason
// then returns early.
void futex_wake(const std::atomic<std::uint32_t>& word) noexcept;

}  // namespace hawser
