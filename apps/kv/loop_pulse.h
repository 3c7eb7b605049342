#pragma once

#include <atomic>
#include <vector>

#include "hawser/server.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser::kv {

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

}  // namespace hawser::kv
