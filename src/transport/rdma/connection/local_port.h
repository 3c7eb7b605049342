#pragma once

#include <memory>

#include "hawser/error.h"
#include "hawser/rdma_options.h"
#include "hawser/time.h"
#include "transport/rdma/connection/parameters.h"
#include "transport/rdma/device/path_mtus.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

// The port of a device as the connections of one loop use it: its state at the last refresh(), one of its addresses,
// and the lengths of packets. Loop's thread only.
class LocalPort {
 public:
  // `options` and `device` outlive this object.
  LocalPort(const RdmaOptions& options, Device& device, const PortStatus& status, const GidEntry& address)
      : options_(options), device_(device), status_(status), address_(address) {}

  // Connections that are made from now on use `address` if the port has it.
  void prefer(const Gid& address) noexcept { preferred_ = address; }
  // Reads the port's state again. The port's addresses change with those of its network, and better ones may have been
  // added since the device was opened. Its MTU and LID change without an event that every device raises.
  void refresh();

  const PortStatus& status() const noexcept { return status_; }
  // Address of connections that are made now.
  const GidEntry& address() const noexcept { return address_; }
  // Longest packets of connections from here, unless the limit toward their peer is smaller.
  unsigned mtu_bytes() const noexcept {
    return options_.path_mtu_bytes != 0 ? options_.path_mtu_bytes : status_.mtu_bytes;
  }
  // Packets of that length, or of the peer's if it is smaller, were lost. False if there is no shorter length.
  bool shorten(const RdmaParameters& peer, Time now);
  unsigned limit(const Gid& peer, Time now) const noexcept { return mtus_.limit(peer, now); }

  RdmaOffer offer() const noexcept;
  // An error if the port is down.
  Result<void> check() const;
  // An error if a client with that offer cannot be reached from the address.
  Result<void> check(const RdmaOffer& client) const;

 private:
  const RdmaOptions& options_;
  Device& device_;
  PortStatus status_;
  GidEntry address_;
  Gid preferred_;
  PathMtus mtus_;
};

}  // namespace hawser::transport::rdma
