#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "hawser/error.h"

namespace hawser::transport {

// Takes the listening sockets that "fd:3" or "fd:3,4" names, which another program opened and passed to this process.
// Nothing if `address` is of another kind. After an error the descriptors stay as they were, because they may be files
// of the process.
Result<std::optional<std::vector<Descriptor>>> inherited_sockets(std::string_view address);

}  // namespace hawser::transport
