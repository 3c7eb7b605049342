#pragma once

#include <memory>

#include "transport/data_path.h"

namespace hawser::transport {

struct SimState;

// A path beside the simulated network's streams, "simpath": connections of its own with faults of their own
// (SimOptions::path_*), so that choice and failover are simulated too.
std::shared_ptr<DataPath> make_sim_path(std::shared_ptr<SimState> state);

}  // namespace hawser::transport
