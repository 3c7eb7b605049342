#pragma once

#include <algorithm>
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
  // As wait(), and calls `tick` each time that `step` has passed, also while SIGHUP comes more often.
  void wait(const std::function<void()>& reload, Duration step, const std::function<void()>& tick) const {
    auto next = std::chrono::steady_clock::now() + step;
    for (int signal = SIGHUP; signal != SIGINT && signal != SIGTERM;) {
      const Duration left = std::max(Duration::zero(), Duration(next - std::chrono::steady_clock::now()));
      const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
      const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (left - seconds) / std::chrono::nanoseconds(1)};
      signal = sigtimedwait(&signals_, nullptr, &limit);
      if (signal == SIGHUP) reload();
      if (std::chrono::steady_clock::now() < next) continue;
      tick();
      next = std::chrono::steady_clock::now() + step;
    }
  }

 private:
  sigset_t signals_;
};

}  // namespace hawser::block
