#pragma once

#include <cstdint>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "transport/rdma/device/verbs.h"

// What the peers tell each other before there is a connection: docs/transports/rdma.md, "Handshake". No I/O; nothing
// received is trusted.
namespace hawser::transport::rdma {

// Of a client: whether a server can reach it at all.
struct Offer {
  static constexpr std::size_t bytes = 32;
  bool ethernet = true;
  GidType type = GidType::roce_v2;
  std::uint16_t lid = 0;
  Gid gid;

  std::vector<std::byte> encode() const;
  static Result<Offer> decode(Bytes bytes);
};

// Of one half.
struct Parameters {
  static constexpr std::size_t bytes = 56;
  bool ethernet = true;
  std::uint16_t lid = 0;
  std::uint32_t queue_pair = 0;
  std::uint32_t sequence = 0;  // First packet sequence number of its sends.
  std::uint32_t mtu_bytes = 1024;
  std::uint32_t chunk_bytes = 0;  // The longest packet that it receives.
  std::uint32_t receives = 0;     // Posted.
  std::uint32_t reads = 1;        // That it answers at once.
  std::uint64_t domain = 0;       // Of memory that it exposes; 0 for none.
  Gid gid;

  std::vector<std::byte> encode() const;
  static Result<Parameters> decode(Bytes bytes);
};

}  // namespace hawser::transport::rdma
