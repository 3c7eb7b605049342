#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/shm_options.h"
#include "transport/shm/meeting.h"

// What the two sides tell each other (docs/transports/shared-memory.md, "Handshake"). All numbers are little-endian.
namespace hawser::transport::shm {

// Which processes can meet by an abstract Unix socket: those of one boot of one kernel and one network namespace.
struct HostIdentity {
  std::array<std::byte, 16> boot{};
  std::uint64_t network_device = 0;  // Device and inode of the network namespace.
  std::uint64_t network_inode = 0;
  bool operator==(const HostIdentity&) const = default;

  // Ours.
  static Result<HostIdentity> here();
};

// A client's offer.
struct Offer {
  HostIdentity host;
  std::uint64_t ring_bytes = 0;
  std::uint64_t slab_bytes = 0;
  std::uint64_t eager_bytes = 0;
};

// The parameters of a server's half. They go over the stream only; the socket's name can be seen by every process of
// the network namespace, the secret can't.
struct Selection {
  Token socket{};  // Names the server's socket: see MeetingSocket.
  Token secret{};  // Sent on the socket by the client: proves that the process there is the stream's peer.
  std::uint64_t ring_bytes = 0;
  std::uint64_t slab_bytes = 0;
  std::uint64_t eager_bytes = 0;
};

// The parameters of a client's half: it has connected to the socket. There is nothing else to say: who the client is,
// and which memory is shared, comes from the socket.
struct Answer {};

std::vector<std::byte> encode(const Offer& offer);
std::vector<std::byte> encode(const Selection& selection);
std::vector<std::byte> encode(const Answer& answer);
Result<Offer> decode_offer(Bytes bytes);
Result<Selection> decode_selection(Bytes bytes);
Result<Answer> decode_answer(Bytes bytes);

}  // namespace hawser::transport::shm
