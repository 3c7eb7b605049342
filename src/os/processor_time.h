#pragma once

#include <chrono>

namespace hawser {

// Processor time that the process has used, of all its threads.
std::chrono::nanoseconds processor_time_used() noexcept;

// Number of processors on which the first thread of the process may run. At least 1.
unsigned processors_of_process() noexcept;

}  // namespace hawser
