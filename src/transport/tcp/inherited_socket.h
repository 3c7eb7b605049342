#pragma once

#include <optional>
#include <string_view>

#include "base/descriptor.h"
#include "hawser/error.h"

namespace hawser::transport {

// Takes the listening socket that "fd:3" names, which another program opened and passed to this process. Nothing if
// `address` is of another kind. After an error the descriptor stays as it was, because it may be a file of the process.
Result<std::optional<Descriptor>> inherited_socket(std::string_view address);

}  // namespace hawser::transport
