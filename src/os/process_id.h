#pragma once

#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace hawser {

// Returns the id of this process. A child by fork() has another one.
inline int process_id() noexcept { return getpid(); }

// Returns false if no process has the id `process`.
inline bool process_exists(int process) noexcept { return kill(process, 0) == 0 || errno != ESRCH; }

// True if this process began a session of its own, as daemon() does.
inline bool leads_session() noexcept { return getsid(0) == getpid(); }

}  // namespace hawser
