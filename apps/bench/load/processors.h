#pragma once

#include <string>
#include <vector>

namespace hawser::bench {

// Returns the processors that this process may use, in ascending order.
std::vector<int> usable_processors();
// Restricts this process, and the threads it starts from now on, to one processor. Returns the error, or an empty
// string.
std::string pin_to(int processor);
// For example "AMD EPYC ...", or "unknown".
std::string processor_model();
// For example "6.1.0 x86_64".
std::string kernel_release();

}  // namespace hawser::bench
