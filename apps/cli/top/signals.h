#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

namespace hawser::cli {

// Waits for SIGINT, SIGTERM, SIGHUP and SIGWINCH on a thread of its own. They are blocked in the thread that makes this
// object and in those that it starts later, until the object ends.
class CommandSignals {
 public:
  // `on_signal` runs on the other thread.
  explicit CommandSignals(std::function<void(int)> on_signal);
  CommandSignals(const CommandSignals&) = delete;
  CommandSignals& operator=(const CommandSignals&) = delete;
  ~CommandSignals();

 private:
  sigset_t before_{};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace hawser::cli
