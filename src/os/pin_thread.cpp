#include "os/pin_thread.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

namespace hawser {

bool pin_thread(int cpu) noexcept {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

unsigned unpin_thread() noexcept {
  cpu_set_t set;
  if (::sched_getaffinity(::getpid(), sizeof set, &set) != 0) return 1;
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  return static_cast<unsigned>(CPU_COUNT(&set));
}

}  // namespace hawser
