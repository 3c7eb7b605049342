#pragma once

#include <cstdint>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "transport/rdma/device/verbs.h"

// Data that the peers exchange before they are connected: docs/transports/rdma.md, "Handshake". No I/O; nothing
// received is trusted.
namespace hawser::transport::rdma {

// A client's offer: its address, by which a server judges whether it can reach the client.
struct RdmaOffer {
  static constexpr std::size_t bytes = 32;
  bool ethernet = true;
  GidType type = GidType::roce_v2;
  std::uint16_t lid = 0;
  Gid gid;

  std::vector<std::byte> encode() const;
  static Result<RdmaOffer> decode(Bytes bytes);
};

// Parameters of one pending connection.
struct RdmaParameters {
  static constexpr std::size_t bytes = 56;
  bool ethernet = true;
  std::uint16_t lid = 0;
  std::uint32_t queue_pair = 0;
  std::uint32_t sequence = 0;  // First packet sequence number of its sends.
  std::uint32_t mtu_bytes = 1024;
  std::uint32_t chunk_bytes = 0;  // Longest packet that it receives.
  std::uint32_t receives = 0;     // Receives that it has posted.
  std::uint32_t reads = 1;        // RDMA reads that it answers at the same time.
  std::uint64_t domain = 0;       // Domain of the memory that it exposes; 0: it exposes none.
  Gid gid;

  std::vector<std::byte> encode() const;
  static Result<RdmaParameters> decode(Bytes bytes);
};

}  // namespace hawser::transport::rdma
