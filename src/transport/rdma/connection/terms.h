#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hawser/rdma_options.h"
#include "hawser/time.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"
#include "transport/rdma/connection/parameters.h"
#include "transport/rdma/device/verbs.h"
#include "transport/rdma/protocol/channel.h"

namespace hawser::transport::rdma {

// The terms of one side of a connection, and what they give together with those of the peer. No I/O.
class RdmaTerms {
 public:
  static constexpr std::size_t receive_buffer_bytes_min = 32 * 1024;

  struct Side {
    const RdmaOptions& options;  // Outlive the terms.
    MessageLimits limits;
    GidEntry address;                   // The one of this side.
    std::uint64_t domain = 0;           // RdmaDevice::domain.
    std::size_t reads_outstanding = 0;  // The limit of the device.
    unsigned mtu_bytes = 0;
    std::uint32_t sequence = 0;  // 24 bits, which a third party cannot guess.
  };
  explicit RdmaTerms(const Side& ours) noexcept;

  const MessageLimits& limits() const noexcept { return ours_.limits; }
  std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  std::uint32_t receives() const noexcept { return receives_; }
  // Work requests that the send queue holds.
  unsigned sends() const noexcept { return sends_; }
  unsigned mtu_bytes() const noexcept { return ours_.mtu_bytes; }
  // Limits the packets of both sides: the peer learns the limit from parameters().
  void limit_mtu(unsigned bytes) noexcept { ours_.mtu_bytes = std::min(ours_.mtu_bytes, bytes); }

  RdmaParameters parameters(const PortStatus& port, std::uint32_t queue_pair) const noexcept;
  // The error says why the peer cannot be reached.
  Result<QueuePairRoute> route_to(const RdmaParameters& peer, const PortStatus& port) const;
  // `segments`: those of one send request.
  RdmaChannelOptions channel_to(const RdmaParameters& peer, std::size_t segments, const exec::Poller& clock) const;

 private:
  std::uint32_t reads() const noexcept;
  std::uint32_t reads_with(const RdmaParameters& peer) const noexcept { return std::min(reads(), peer.reads); }

  Side ours_;
  const std::size_t chunk_bytes_;
  const std::uint32_t receives_;
  const unsigned sends_;
};

}  // namespace hawser::transport::rdma
