#pragma once

#include <memory>

#include "hawser/loop.h"
#include "hawser/transport/poller.h"

namespace hawser::exec {

// The poller that `options` ask for and this kernel has.
std::unique_ptr<Poller> make_poller(const LoopOptions& options);

}  // namespace hawser::exec
