#pragma once

#include <memory>

#include "transport/network.h"

namespace hawser::setup {

// The network of this machine, with the transports beside the stream that this build has.
std::shared_ptr<transport::Network> system_network();

}  // namespace hawser::setup
