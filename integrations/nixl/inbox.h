#pragma once

#include <hawser/error.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hawser::nixl {

// The methods that an agent serves: its identity, and notifications. The server's loops and NIXL's threads use it at
// the same time.
class Inbox {
 public:
  // Notifications that take() has not returned yet. More are refused with `overloaded`.
  static constexpr std::size_t messages_max = 1'000'000;
  static constexpr std::size_t bytes_max = std::size_t{256} << 20;

  using Notification = std::pair<std::string, std::string>;  // Name of the sending agent, and the message.

  explicit Inbox(std::uint64_t id) noexcept : id_(id) {}

  // ---- Methods
  std::uint64_t identify() const noexcept { return id_; }
  Result<void> notify(std::string agent, std::vector<std::string> messages);

  // All notifications that have arrived, in their order. Any thread.
  std::vector<Notification> take();

 private:
  const std::uint64_t id_;
  std::mutex mutex_;
  std::vector<Notification> arrived_;
  std::size_t bytes_ = 0;
};

}  // namespace hawser::nixl
