#pragma once

#include "base/descriptor.h"
#include "exec/watcher_table.h"
#include "hawser/transport/poller.h"

namespace hawser::exec {

// Waits with edge-triggered epoll; an eventfd wakes it. Works on every Linux.
class EpollPoller final : public Poller {
 public:
  // Throws std::system_error if the process is out of descriptors.
  EpollPoller();

  std::string_view name() const noexcept override { return "epoll"; }
  // Readable while wait() would deliver an event, and after wake() until the next wait().
  int descriptor() const noexcept { return epoll_.get(); }
  Time now() const noexcept override;
  std::size_t wait(Duration timeout, Time& now) override;
  void wake() noexcept override;
  void watch(int fd, Watcher& watcher) override;
  void unwatch(int fd, Watcher& watcher) noexcept override;

 private:
  static constexpr int events_max = 256;  // Maximum of events that one system call returns.
  static constexpr std::uint64_t wake_token = ~std::uint64_t{0};

  const Descriptor epoll_;
  const Descriptor wake_;
  WatcherTable watchers_;
  bool precise_ = true;  // The system has epoll_pwait2(), as far as is known.
};

// Returns the time of the monotonic clock, for pollers in real time.
Time monotonic_now() noexcept;

}  // namespace hawser::exec
