#include "rpc/server/receive_peers.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace hawser::rpc {
namespace {

constexpr std::size_t groups_all = 8;
constexpr std::size_t groups_of_network = 4;

std::vector<std::string_view> split_groups(std::string_view text) {
  std::vector<std::string_view> groups;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(':'), text.size());
    groups.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return groups;
}

// Returns the first four groups of an IPv6 address in text form.
std::string network_of(std::string_view host) {
  const std::size_t gap = host.find("::");
  std::vector<std::string_view> groups = split_groups(host.substr(0, gap));
  if (gap != std::string_view::npos) {
    const std::vector<std::string_view> last = split_groups(host.substr(gap + 2));
    while (groups.size() + last.size() < groups_all) groups.emplace_back("0");
    groups.insert(groups.end(), last.begin(), last.end());
  }
  std::string network;
  for (std::size_t i = 0; i < std::min(groups.size(), groups_of_network); ++i) {
    network.append(groups[i]).push_back(':');
  }
  return network + ":/64";
}

}  // namespace

std::string receive_peer_of(std::string_view peer) {
  constexpr std::string_view unix_scheme = "unix:";
  if (peer.starts_with("unix:pid ")) return std::string(peer);
  if (peer.starts_with(unix_scheme)) return std::string(unix_scheme);
  const std::string_view host = peer.substr(0, peer.rfind(':'));
  // An IPv4 address may be written as an IPv6 address: [::ffff:10.0.0.1].
  const bool v6 = host.starts_with('[') && host.ends_with(']') && host.find('.') == std::string_view::npos;
  return v6 ? network_of(host.substr(1, host.size() - 2)) : std::string(host);
}

std::shared_ptr<detail::ReceivePeer> ReceivePeers::find(std::string_view peer) {
  if (by_name_.size() >= sweep_size_) {
    std::erase_if(by_name_, [](const auto& one) { return one.second.expired(); });
    sweep_size_ = std::max<std::size_t>(2 * by_name_.size(), 64);
  }
  std::weak_ptr<detail::ReceivePeer>& entry = by_name_[receive_peer_of(peer)];
  std::shared_ptr<detail::ReceivePeer> found = entry.lock();
  if (found == nullptr) entry = found = std::make_shared<detail::ReceivePeer>();
  return found;
}

}  // namespace hawser::rpc
