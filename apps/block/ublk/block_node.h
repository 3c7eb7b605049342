#pragma once

#include <string>

#include "block/nbd/socket_descriptor.h"
#include "hawser/error.h"

namespace hawser::block::ublk {

// Opens a block device so that nobody mounts it or opens it exclusively meanwhile. `number_file` is the file of sysfs
// with its number. `node` may be absent, or something else with the name of the device: then a node is made beside it
// for a moment. The descriptor is invalid if the kernel does not have the device any more. Errors: EBUSY if it is
// mounted, or used exclusively by others.
Result<nbd::SocketDescriptor> open_exclusively(const std::string& node, const std::string& number_file);

}  // namespace hawser::block::ublk
