#pragma once

#include <memory>

#include "hawser/shm_options.h"
#include "transport/data_path.h"

namespace hawser::transport {

// Connections through memory that two processes of one host share, "shm". Options out of bounds are told by attach().
std::shared_ptr<DataPath> make_shm_path(const ShmOptions& options);

}  // namespace hawser::transport
