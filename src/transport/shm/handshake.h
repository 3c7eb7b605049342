#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/shm_options.h"
#include "transport/shm/meeting.h"

// Data that the two sides exchange (docs/transports/shared-memory.md, "Handshake"). All numbers are little-endian.
namespace hawser::transport::shm {

// Identifies the processes that can meet at an abstract Unix socket: those of one boot of one kernel and one network
// namespace.
struct HostIdentity {
  std::array<std::byte, 16> boot{};
  std::uint64_t network_device = 0;  // Device and inode of the network namespace.
  std::uint64_t network_inode = 0;
  bool operator==(const HostIdentity&) const = default;

  // Identity of this process.
  static Result<HostIdentity> here();
};

// A client's offer.
struct ShmOffer {
  HostIdentity host;
  std::uint64_t ring_bytes = 0;
  std::uint64_t slab_bytes = 0;
  std::uint64_t eager_bytes = 0;
};

// Parameters of the server's pending connection. They are sent only over the stream. Every process of the network
// namespace can see the name of the socket, but not the secret.
struct Selection {
  Token socket{};  // Name of the server's socket: see MeetingSocket.
  Token secret{};  // The client sends it on the socket: this proves that the process there is the stream's peer.
  std::uint64_t ring_bytes = 0;
  std::uint64_t slab_bytes = 0;
  std::uint64_t eager_bytes = 0;
};

// Parameters of the client's pending connection, which has connected to the socket. They are empty, because the socket
// shows which process the client is, and carries the shared memory.
struct ShmAnswer {};

std::vector<std::byte> encode(const ShmOffer& offer);
std::vector<std::byte> encode(const Selection& selection);
std::vector<std::byte> encode(const ShmAnswer& answer);
Result<ShmOffer> decode_offer(Bytes bytes);
Result<Selection> decode_selection(Bytes bytes);
Result<ShmAnswer> decode_answer(Bytes bytes);

}  // namespace hawser::transport::shm
