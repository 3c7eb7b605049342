#include "transport/rdma/connection/local_port.h"

#include <algorithm>
#include <string>

#include "transport/rdma/device/address.h"

namespace hawser::transport::rdma {

void LocalPort::refresh() {
  if (const auto status = device_.port(status_.number)) status_ = *status;
  const auto addresses = device_.gids(status_.number);
  if (!addresses) return;
  if (const auto chosen = choose_address(options_, *addresses, preferred_)) address_ = *chosen;
}

bool LocalPort::shorten(const RdmaParameters& peer, Time now) {
  return mtus_.shorten(peer.gid, std::min<unsigned>(mtu_bytes(), peer.mtu_bytes), now);
}

RdmaOffer LocalPort::offer() const noexcept {
  return {.ethernet = status_.ethernet, .type = address_.type, .lid = status_.lid, .gid = address_.gid};
}

Result<void> LocalPort::check() const {
  if (status_.active) return {};
  return fail(Error::of_transport(ErrorCode::unavailable, "port " + std::to_string(status_.number) + " of " +
                                                              device_.name() + " is down: see rdma link"));
}

Result<void> LocalPort::check(const RdmaOffer& client) const {
  if (client.ethernet != status_.ethernet) {
    return fail(Error::of_transport(ErrorCode::unavailable, "one side has RoCE and the other InfiniBand"));
  }
  if (client.ethernet && (client.type != address_.type || client.gid.ipv4_mapped() != address_.gid.ipv4_mapped())) {
    return fail(Error::of_transport(
        ErrorCode::unavailable, "the client's RDMA address " + to_string(client.gid) + " (" +
                                    std::string(to_string(client.type)) + ") is of another kind than the server's " +
                                    to_string(address_.gid) + " (" + std::string(to_string(address_.type)) +
                                    "): set RdmaOptions::address on both sides"));
  }
  return {};
}

}  // namespace hawser::transport::rdma
