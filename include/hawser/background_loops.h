#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "hawser/loop.h"

namespace hawser {

struct BackgroundOptions {
  unsigned threads = 1;   // Number of loops, each with its own thread. 0 means 1.
  LoopOptions loop = {};  // Options of each loop.
  // Processors to which the threads are pinned, in turn. Empty: not pinned.
  std::vector<int> cpus = {};
};

// Loops that run on threads of their own, for programs whose threads run no loop. BlockingClients share them and keep
// them. Thread-safe.
class BackgroundLoops {
 public:
  // Starts the threads. Throws std::system_error if a thread or a descriptor is not available.
  static std::shared_ptr<BackgroundLoops> start(BackgroundOptions options = {});
  BackgroundLoops(const BackgroundLoops&) = delete;
  BackgroundLoops& operator=(const BackgroundLoops&) = delete;
  // Stops the loops and waits for their threads. On a thread of one of these loops, that thread ends by itself soon
  // after. In a child process made by fork() it does nothing, because the threads belong to the parent process.
  ~BackgroundLoops();

  std::size_t size() const noexcept;
  // Loop::post() reaches the loop from any thread. `index` is less than size(). Do not stop it.
  Loop& loop(std::size_t index) const noexcept;

  // For the library: false in a child process made by fork().
  bool in_this_process() const noexcept;

 private:
  struct State;
  explicit BackgroundLoops(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace hawser
