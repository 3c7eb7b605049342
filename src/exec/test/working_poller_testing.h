#pragma once

#include <cstddef>
#include <string_view>

#include "exec/sim_poller.h"

namespace hawser::exec {

// Virtual time that also advances at each reading of the clock, and by what a test adds to `worked`.
class WorkingPoller final : public Poller {
 public:
  // `reading`: time that a reading of the clock takes. Both outlive the poller.
  WorkingPoller(Duration& worked, const Duration& reading) noexcept : worked_(worked), reading_(reading) {}

  std::string_view name() const noexcept override { return "simulated work"; }
  Time now() const noexcept override { return sim_.now() + (worked_ += reading_); }
  std::size_t wait(Duration timeout, Time& now) override {
    Time waited;
    const std::size_t found = sim_.wait(timeout, waited);
    now = this->now();
    return found;
  }
  void wake() noexcept override {}
  void watch(int fd, Watcher& watcher) override { sim_.watch(fd, watcher); }
  void unwatch(int, Watcher&) noexcept override {}
  bool real_time() const noexcept override { return false; }

 private:
  SimPoller sim_;
  Duration& worked_;
  const Duration& reading_;
};

}  // namespace hawser::exec
