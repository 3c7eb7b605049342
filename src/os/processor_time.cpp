#include "os/processor_time.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace hawser {

std::chrono::nanoseconds processor_time_used() noexcept {
  timespec time = {};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Other threads may be bound to one processor each.
unsigned processors_of_process() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(::getpid(), sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::max(CPU_COUNT(&set), 1));
}

}  // namespace hawser
