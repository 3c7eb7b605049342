#pragma once

#include <cstdint>

#include "hawser/bytes.h"

namespace hawser {

// Fills `to` with random bytes of the kernel's generator, which cannot be guessed from earlier ones: for everything
// that a peer must not guess, such as tokens, ids, names and first packet sequence numbers. Any thread. Throws
// std::system_error if the kernel has no generator.
void fill_random(MutableBytes to);
std::uint64_t kernel_random();

}  // namespace hawser
