#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "transport/shm/memory/shared_memory.h"
#include "transport/shm/peer.h"

namespace hawser::transport::shm {

// Payloads that the peer reads from their owners' memory. Each has a slot of the shared memory until the peer has read
// it. An owner that is notified may call any function here.
class OfferedPayloads {
 public:
  static constexpr std::size_t none = SIZE_MAX;

  struct Payload {
    std::size_t slot = 0;
    SendCompletion* owner = nullptr;  // Null once `copy` holds the payload.
    Buffer copy;
    std::size_t bytes = 0;
    std::size_t count = 0;  // Number of pieces.
    std::array<ConstBuffer, read_pieces_max> pieces;
    std::size_t done = 0;  // Bytes copied for a peer that requests the payload in parts.
  };

  OfferedPayloads(const SharedMemory& memory, std::size_t side);

  // Returns the slot, or `none` if none is free or the payload has too many pieces. The bytes must not change until
  // `owner` is notified.
  std::size_t offer(std::span<const ConstBuffer> payload, std::size_t payload_bytes, SendCompletion& owner);
  // Notifies the owners of payloads that have been read, and copies the parts that the peer requests. True if it did
  // anything.
  bool advance(PeerWaker& waker);
  // True if advance() could do something.
  bool can_advance() const noexcept;
  // Copies the payloads of `owner`, which is not notified.
  void copy_and_release(SendCompletion& owner);
  // The connection has ended. The peer does not read any of the returned payloads any more; the caller notifies their
  // owners.
  std::vector<Payload> withdraw() noexcept;

  bool empty() const noexcept { return payloads_.empty(); }
  std::size_t bytes() const noexcept { return bytes_; }
  // The peer has requested a part behind the end of a payload.
  bool broken() const noexcept { return broken_; }

 private:
  void fill_part(Payload& payload, PeerWaker& waker);

  std::array<ReadSlot, reads_max>& slots_;
  std::byte* const part_;  // Shared memory for one part.
  const ProcessMark& mark_;
  std::vector<Payload> payloads_;  // In no order.
  std::vector<std::size_t> free_slots_;
  std::size_t bytes_ = 0;  // Bytes of all payloads.
  bool broken_ = false;
};

}  // namespace hawser::transport::shm
