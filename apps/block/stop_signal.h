#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <functional>

#include "hawser/time.h"
#include "process/program.h"

namespace hawser::block {

// The signals that end a server, and SIGHUP, upon which a server with rules reads them again. Blocked from the
// construction on, before threads start, so that wait() receives them.
class StopSignal {
 public:
  // `reloads`: SIGHUP does not end the server, and wait() calls `reload`.
  explicit StopSignal(bool reloads) noexcept : reloads_(reloads) {
    if (reloads) sigaddset(&signals_, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  // Calls `reload` at each SIGHUP until the server ends.
  void wait(const std::function<void()>& reload) const {
    for (int signal = 0; sigwait(&signals_, &signal) == 0 && !ends(signal);) reload();
  }
  // As wait(), and calls `tick` each time that `step` has passed, also while SIGHUP comes more often.
  void wait(const std::function<void()>& reload, Duration step, const std::function<void()>& tick) const {
    auto next = std::chrono::steady_clock::now() + step;
    for (int signal = -1; !ends(signal);) {
      const Duration left = std::max(Duration::zero(), Duration(next - std::chrono::steady_clock::now()));
      const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
      const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (left - seconds) / std::chrono::nanoseconds(1)};
      signal = sigtimedwait(&signals_, nullptr, &limit);
      if (reloads_ && signal == SIGHUP) reload();
      if (std::chrono::steady_clock::now() < next) continue;
      tick();
      next = std::chrono::steady_clock::now() + step;
    }
  }

 private:
  // -1: none has come.
  bool ends(int signal) const noexcept { return signal >= 0 && !(reloads_ && signal == SIGHUP); }

  bool reloads_;
  sigset_t signals_ = process::ending_signals();
};

}  // namespace hawser::block
