#pragma once

#include <unistd.h>

namespace hawser {

// Returns the id of this process. A child by fork() has another one.
inline int process_id() noexcept { return getpid(); }

}  // namespace hawser
