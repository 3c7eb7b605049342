#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "hawser/detail/receive_account.h"

namespace hawser::rpc {

// Who counts as one peer, of a stream's peer(): the host; the network of 64 bits of an IPv6 address, since whoever has
// one address there has all; the process at a Unix socket, or all processes whose sockets have names of their choice.
std::string receive_peer_of(std::string_view peer);

// What the peers of one loop hold of its receive budget.
class ReceivePeers {
 public:
  // The record of the peer, which all of its connections share and keep alive.
  std::shared_ptr<detail::ReceivePeer> find(std::string_view peer);

 private:
  std::map<std::string, std::weak_ptr<detail::ReceivePeer>> by_name_;
  std::size_t sweep_size_ = 64;  // Of by_name_, when peers that have gone are removed next.
};

}  // namespace hawser::rpc
