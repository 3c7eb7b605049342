#pragma once

#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "hawser/time.h"

namespace hawser::programs {

// The service manager that started this program, such as systemd, as its environment describes it: sd_notify(3),
// sd_listen_fds(3), sd_watchdog_enabled(3). Without a manager there are no sockets, and the notifications do nothing.
// For one thread.
class ServiceManager {
 public:
  // Reads the variables and removes them, so that child processes do not use them. Called before the first thread
  // starts.
  ServiceManager();

  // Number of sockets that the manager passed. Their descriptors begin at 3.
  unsigned sockets() const noexcept { return sockets_; }
  // The manager ends the program if alive() is not called for this time. Zero: it does not.
  Duration watchdog() const noexcept { return watchdog_; }

  void ready(std::string_view status) noexcept;
  void alive() noexcept;
  void stopping() noexcept;

 private:
  void notify(std::string_view text) noexcept;

  Descriptor notifications_;  // A connected datagram socket. Invalid: there is no manager.
  unsigned sockets_ = 0;
  Duration watchdog_{};
};

}  // namespace hawser::programs
