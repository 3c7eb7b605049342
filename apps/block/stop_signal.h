#pragma once

#include <csignal>
#include <functional>

namespace hawser::block {

// SIGINT and SIGTERM, which end a server, and SIGHUP, upon which it reads its rules again. Blocked from the
// construction on, before threads start, so that wait() receives them.
class StopSignal {
 public:
  // `reloads`: otherwise SIGHUP has its default action.
  explicit StopSignal(bool reloads) noexcept {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    if (reloads) sigaddset(&signals_, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  // Calls `reload` at each SIGHUP until the server ends.
  void wait(const std::function<void()>& reload) const {
    for (int signal = 0; sigwait(&signals_, &signal) == 0 && signal == SIGHUP;) reload();
  }

 private:
  sigset_t signals_;
};

}  // namespace hawser::block
