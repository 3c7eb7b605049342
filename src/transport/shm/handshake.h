#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/shm_options.h"
#include "transport/shm/shared_memory.h"

// What the two sides tell each other (docs/transports/shared-memory.md, "Coming together"). All numbers are little-endian.
namespace hawser::transport::shm {

// Which processes can see each other's descriptors: those of one boot of one kernel and one namespace of process numbers.
struct Place {
  std::array<std::byte, 16> boot{};
  std::uint64_t namespace_device = 0;
  std::uint64_t namespace_number = 0;
  bool operator==(const Place&) const = default;

  // Ours.
  static Result<Place> here();
};

// A client's offer.
struct Offer {
  Place place;
  std::uint64_t ring_bytes = 0;
  std::uint64_t slab_bytes = 0;
  std::uint64_t eager_bytes = 0;
};

// What a server's half tells.
struct Proposal {
  std::uint32_t pid = 0;
  std::uint32_t memory_fd = 0;
  std::uint32_t bell_fd = 0;
  Nonce nonce{};
  std::uint64_t ring_bytes = 0;
  std::uint64_t slab_bytes = 0;
  std::uint64_t eager_bytes = 0;
  std::uint64_t probe_address = 0;  // Of a copy of the nonce, for the client to try whether it may read our memory.
};

// What a client's half answers.
struct Answer {
  std::uint32_t pid = 0;
  std::uint32_t memory_fd = 0;
  std::uint32_t bell_fd = 0;
  std::uint64_t probe_address = 0;
};

std::vector<std::byte> encode(const Offer& offer);
std::vector<std::byte> encode(const Proposal& proposal);
std::vector<std::byte> encode(const Answer& answer);
Result<Offer> decode_offer(Bytes bytes);
Result<Proposal> decode_proposal(Bytes bytes);
Result<Answer> decode_answer(Bytes bytes);

}  // namespace hawser::transport::shm
