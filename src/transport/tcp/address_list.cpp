#include "transport/tcp/address_list.h"

#include <utility>

namespace hawser::transport {

void AddressList::add(const SocketAddress& address) {
  if (added_ == addresses_max) return;
  ++added_;
  (address.family() == AF_INET6 ? v6_ : others_).push_back(address);
  changed.notify_all();
}

void AddressList::complete(std::optional<Error> error) {
  if (std::exchange(completed_, true)) return;
  error_ = std::move(error);
  changed.notify_all();
}

std::optional<SocketAddress> AddressList::next() {
  if (empty()) return std::nullopt;
  std::deque<SocketAddress>& from = others_.empty() || (!v6_.empty() && !last_was_v6_) ? v6_ : others_;
  last_was_v6_ = &from == &v6_;
  const SocketAddress first = from.front();
  from.pop_front();
  return first;
}

}  // namespace hawser::transport
