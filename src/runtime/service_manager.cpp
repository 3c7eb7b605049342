#include "hawser/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/descriptor.h"

namespace hawser {
namespace {

std::string take_manager_variable(const char* name) {
  const char* const value = std::getenv(name);
  std::string taken = value != nullptr ? value : "";
  ::unsetenv(name);
  return taken;
}

// Returns 0 if the variable is absent or not a number.
std::uint64_t take_manager_number(const char* name) {
  const std::string text = take_manager_variable(name);
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && rest == text.data() + text.size() ? number : 0;
}

// A manager that does not read holds the program for this time at most with each notification.
constexpr timeval notification_time_max{.tv_sec = 1, .tv_usec = 0};

// A program that is passed more sockets uses the first ones.
constexpr unsigned sockets_max = 64;

// Returns an invalid descriptor if nobody receives datagrams at `name`, which is a path or "@" and an abstract name.
Descriptor notification_socket(std::string name) {
  sockaddr_un address{};
  if (name.empty() || name.size() >= sizeof address.sun_path || (name[0] != '/' && name[0] != '@')) return {};
  address.sun_family = AF_UNIX;
  if (name[0] == '@') name[0] = '\0';
  std::memcpy(address.sun_path, name.data(), name.size());
  Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (!socket.valid() || connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &notification_time_max, sizeof notification_time_max);
  return socket;
}

}  // namespace

ServiceManager::ServiceManager()
    : notifications_(std::make_unique<Descriptor>(notification_socket(take_manager_variable("NOTIFY_SOCKET")))) {
  const auto process = static_cast<std::uint64_t>(getpid());
  const std::uint64_t sockets = take_manager_number("LISTEN_FDS");
  // A parent may have received the sockets and have left its variables to this program.
  if (take_manager_number("LISTEN_PID") == process) {
    sockets_ = static_cast<unsigned>(std::min<std::uint64_t>(sockets, sockets_max));
  }
  ::unsetenv("LISTEN_FDNAMES");
  const std::uint64_t microseconds = take_manager_number("WATCHDOG_USEC");
  const std::uint64_t watched = take_manager_number("WATCHDOG_PID");
  if (watched == 0 || watched == process) watchdog_ = std::chrono::microseconds(microseconds);
}

ServiceManager::~ServiceManager() = default;

std::string ServiceManager::listen(std::string otherwise) const {
  if (sockets_ == 0) return otherwise;
  std::string names = "fd:";
  for (unsigned i = 0; i < sockets_; ++i) names += (i == 0 ? "" : ",") + std::to_string(first_own_descriptor + i);
  return names;
}

void ServiceManager::ready(std::string_view status) noexcept { notify("READY=1\nSTATUS=" + std::string(status)); }

void ServiceManager::alive() noexcept { notify("WATCHDOG=1"); }

void ServiceManager::stopping() noexcept { notify("STOPPING=1"); }

void ServiceManager::notify(std::string_view assignments) noexcept {
  if (!notifications_->valid()) return;
  static_cast<void>(::send(notifications_->get(), assignments.data(), assignments.size(), MSG_NOSIGNAL));
}

}  // namespace hawser
