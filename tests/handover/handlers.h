#pragma once

#include <cstdint>

#include "hawser/hawser.h"

namespace hawser::handover_tests {

// Returns the number of the process that serves. Each eighth call takes some time.
Task<std::uint64_t> number_of_process(Context& context, std::uint64_t call);

}  // namespace hawser::handover_tests
