#pragma once

#include <string>
#include <vector>

namespace hawser::bench {

// The processors that this process may use, ascending.
std::vector<int> usable_processors();
// Restricts this process, and the threads it starts from now on, to one processor. Gives what went wrong, or nothing.
std::string pin_to(int processor);
// "AMD EPYC ...", or "unknown".
std::string processor_model();
// "6.1.0 x86_64".
std::string kernel_release();

}  // namespace hawser::bench
