#pragma once

#include <memory>

#include "exec/poller.h"
#include "hawser/loop.h"

namespace hawser::exec {

// The poller that `options` ask for and this kernel has.
std::unique_ptr<Poller> make_poller(const LoopOptions& options);

}  // namespace hawser::exec
