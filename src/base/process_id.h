#pragma once

#include <unistd.h>

namespace hawser {

// The number of this process. Differs in a child by fork().
inline int process_id() noexcept { return getpid(); }

}  // namespace hawser
