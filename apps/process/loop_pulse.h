#pragma once

#include <atomic>
#include <vector>

#include "hawser/server.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser::process {

// A watchdog of ServiceManager is notified at least twice within its time.
inline constexpr int pulses_per_watchdog = 4;

// Says whether each loop of a server still runs its coroutines.
class LoopPulse {
 public:
  // Starts background work on each loop of `server`, which has started. The work marks its loop every `interval`. This
  // object lives until the server has stopped.
  LoopPulse(Server& server, Duration interval);

  // True if each loop was marked since the last call that returned true. One thread.
  bool all_beat() noexcept;

 private:
  std::vector<std::atomic<bool>> beats_;  // One for each loop. They order no other memory.
};

}  // namespace hawser::process
