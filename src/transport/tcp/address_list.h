#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "exec/condition.h"
#include "transport/tcp/socket.h"

namespace hawser::transport {

// The addresses of a host in the order in which they are tried: the two families alternate, IPv6 first (RFC 8305,
// section 4). The list may grow while it is used. Loop's thread only.
class AddressList {
 public:
  // Limit for one host. Further addresses are not tried, and each family may have at least half. The limit prevents a
  // name server from making a client connect without end.
  static constexpr std::size_t addresses_max = 32;

  explicit AddressList(Loop& loop) : changed(loop) {}

  void add(const SocketAddress& address);
  // No more addresses will be added. The error says why there may be none.
  void complete(std::optional<Error> error = {});

  // Returns the next address to try; nothing if all known addresses have been tried.
  std::optional<SocketAddress> next();
  bool empty() const noexcept { return v6_.left.empty() && others_.left.empty(); }
  bool completed() const noexcept { return completed_; }
  const std::optional<Error>& error() const noexcept { return error_; }

  exec::Condition changed;  // Notified when addresses were added or the list is complete.

 private:
  struct Family {
    std::deque<SocketAddress> left;  // Not tried yet.
    std::size_t added = 0;
  };
  Family v6_;
  Family others_;
  bool last_was_v6_ = false;
  bool completed_ = false;
  std::optional<Error> error_;
};

}  // namespace hawser::transport
