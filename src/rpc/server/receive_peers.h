#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "hawser/detail/receive_account.h"

namespace hawser::rpc {

// Returns the name under which memory is counted, from a stream's peer(). It is the host; for IPv6 the 64-bit network,
// since the owner of one address there has them all; for a Unix socket the process, or one name for all processes whose
// sockets have names of their choice.
std::string receive_peer_of(std::string_view peer);

// Counts the receive budget that each peer of one loop uses.
class ReceivePeers {
 public:
  // Returns the record of the peer. All of its connections share the record and keep it alive.
  std::shared_ptr<detail::ReceivePeer> find(std::string_view peer);

 private:
  std::map<std::string, std::weak_ptr<detail::ReceivePeer>> by_name_;
  std::size_t sweep_size_ = 64;  // Size of by_name_ at which the records of peers without connections are removed next.
};

}  // namespace hawser::rpc
