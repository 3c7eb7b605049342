#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hawser/time.h"

namespace hawser {

class Descriptor;

// The service manager that started this program, such as systemd, as its environment describes it: sd_notify(3),
// sd_listen_fds(3), sd_watchdog_enabled(3). Without a manager there are no sockets, and the notifications do nothing.
// The notifications may be sent by any thread. If the manager does not read, each waits for a second at most. Not part
// of hawser.h.
class ServiceManager {
 public:
  // Reads the variables and removes them, so that child processes do not use them. Call it before the first thread
  // starts.
  ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;
  ~ServiceManager();

  // Number of sockets that the manager passed, at most 64: further ones stay open and unused. Their descriptors begin
  // at 3.
  unsigned sockets() const noexcept { return sockets_; }
  // A value for ServerOptions::listen: all sockets that the manager passed, such as "fd:3", or `otherwise` without any.
  std::string listen(std::string otherwise) const;
  // The manager ends the program if alive() is not called for this time. Zero: it does not.
  Duration watchdog() const noexcept { return watchdog_; }

  // The service accepts connections. `status` is one line for people, which `systemctl status` shows.
  void ready(std::string_view status) noexcept;
  // The program works; see watchdog().
  void alive() noexcept;
  // The program begins to end.
  void stopping() noexcept;
  // Sends other assignments of sd_notify(3), one a line, such as "RELOADING=1".
  void notify(std::string_view assignments) noexcept;

 private:
  std::unique_ptr<Descriptor> notifications_;  // A connected datagram socket. Invalid: there is no manager.
  unsigned sockets_ = 0;
  Duration watchdog_{};
};

}  // namespace hawser
