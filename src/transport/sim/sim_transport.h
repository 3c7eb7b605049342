#pragma once

#include <memory>

#include "hawser/transport/transport.h"

namespace hawser::transport {

struct SimState;

// Returns a transport beside the simulated network's streams, "simpath". It makes connections of its own with faults of
// their own (SimOptions::transport_*), so that selection and failover are simulated too.
std::shared_ptr<Transport> make_sim_transport(std::shared_ptr<SimState> state);

}  // namespace hawser::transport
