#pragma once

#include <cstdint>
#include <memory>

#include "hawser/loop.h"
#include "hawser/transport/poller.h"

namespace hawser::exec {

// Makes the poller that `options` request, as far as this kernel has it.
std::unique_ptr<Poller> make_poller(const LoopOptions& options);

// The seed of a loop's random numbers: that of the poller, or a number of the kernel's generator.
std::uint64_t seed_of(const Poller& poller) noexcept;

}  // namespace hawser::exec
