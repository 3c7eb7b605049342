#include "transport/tcp/address_list.h"

#include <utility>

namespace hawser::transport {

void AddressList::add(const SocketAddress& address) {
  const bool v6 = address.family() == AF_INET6;
  Family& own = v6 ? v6_ : others_;
  Family& other = v6 ? others_ : v6_;
  if (own.added + other.added >= addresses_max) {
    // The family that arrived first must not leave the other one out.
    if (own.added >= addresses_max / 2) return;
    if (!other.left.empty()) {
      other.left.pop_back();
      --other.added;
    }
  }
  ++own.added;
  own.left.push_back(address);
  changed.notify_all();
}

void AddressList::complete(std::optional<Error> error) {
  if (std::exchange(completed_, true)) return;
  error_ = std::move(error);
  changed.notify_all();
}

std::optional<SocketAddress> AddressList::next() {
  if (empty()) return std::nullopt;
  Family& from = others_.left.empty() || (!v6_.left.empty() && !last_was_v6_) ? v6_ : others_;
  last_was_v6_ = &from == &v6_;
  const SocketAddress first = from.left.front();
  from.left.pop_front();
  return first;
}

}  // namespace hawser::transport
