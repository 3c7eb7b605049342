#pragma once

#include <pthread.h>

namespace hawser {

// From now on, fork() calls `before` in the thread that calls it, then `parent` in the parent process and `child` in
// the child process. There is no way to remove them.
inline void at_fork(void (*before)(), void (*parent)(), void (*child)()) { pthread_atfork(before, parent, child); }

}  // namespace hawser
