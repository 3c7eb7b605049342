#pragma once

#include <memory>

#include "hawser/loop.h"
#include "hawser/transport/poller.h"

namespace hawser::exec {

// Makes the poller that `options` request, as far as this kernel has it.
std::unique_ptr<Poller> make_poller(const LoopOptions& options);

}  // namespace hawser::exec
