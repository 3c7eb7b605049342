#pragma once

#include <chrono>
#include <csignal>
#include <ctime>
#include <functional>

#include "hawser/time.h"

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
  // As wait(), and calls `tick` each time that `step` has passed without a signal.
  void wait(const std::function<void()>& reload, Duration step, const std::function<void()>& tick) const {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(step);
    const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (step - seconds) / std::chrono::nanoseconds(1)};
    for (int signal = SIGHUP; signal != SIGINT && signal != SIGTERM;) {
      signal = sigtimedwait(&signals_, nullptr, &limit);
      if (signal == SIGHUP) {
        reload();
      } else if (signal < 0) {
        tick();
      }
    }
  }

 private:
  sigset_t signals_;
};

}  // namespace hawser::block
