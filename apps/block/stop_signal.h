#pragma once

#include <csignal>

namespace hawser::block {

// SIGINT and SIGTERM, which end a server. Blocked from the construction on, before threads start, so that wait()
// receives them.
class StopSignal {
 public:
  StopSignal() noexcept {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  void wait() const noexcept {
    int signal = 0;
    sigwait(&signals_, &signal);
  }

 private:
  sigset_t signals_;
};

}  // namespace hawser::block
