#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "hawser/bytes.h"
#include "transport/connection.h"
#include "transport/shm/peer.h"
#include "transport/shm/ring.h"
#include "transport/shm/slab.h"

namespace hawser::transport::shm {

// What callbacks may change while messages are taken.
struct Gate {
  MessageSink* sink = nullptr;
  bool paused = false;
  bool ended = false;

  bool open() const noexcept { return sink != nullptr && !paused && !ended; }
};

// A message that comes by parts.
struct LongMessage {
  Buffer head;
  Buffer own;                   // The payload's place, if it is ours.
  std::byte* memory = nullptr;  // Where the payload goes; null while it is discarded.
  std::size_t payload_bytes = 0;
  std::size_t done = 0;  // Of head and payload.
  bool placed = false;
  std::size_t total() const noexcept { return head.size() + payload_bytes; }
};

// What one side receives: takes messages out of the peer's ring, and payloads from where they are. Whatever the peer wrote is
// copied before it is checked; a breach is an error.
class Incoming {
 public:
  struct Limits {
    std::size_t message_bytes_max = 0;  // Head and payload.
    std::size_t placed_bytes_min = 0;
  };
  // From the ring and slab that `side` writes.
  Incoming(std::shared_ptr<SharedMemory> memory, std::size_t side, const Limits& limits, const PeerProcess& peer,
           const PeerWaker& waker);
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;
  ~Incoming();

  // Delivers what is there, as long as the gate is open; true if there was something. An error says why nothing more comes:
  // the peer's end, or its fault.
  Result<bool> take(Gate& gate);
  // Something is there.
  bool ready() noexcept { return ring_.available() != 0 || ring_.broken() || held_; }
  void unplace(const std::byte* memory) noexcept;
  std::uint64_t arrived() const noexcept { return arrived_; }

 private:
  Result<void> take_one(Gate& gate);
  void take_whole(const Record& record, const std::byte* head, Gate& gate);
  Result<void> take_from_slab(const Record& record, Bytes head, Gate& gate);
  Result<void> take_by_reading(const Record& record, Bytes head, Gate& gate);
  Result<bool> read_offered_payload(const Record& record, MutableBytes to);
  Result<void> begin_long(const Record& record);
  Result<void> take_part(const Record& record, Gate& gate);
  void place_long(Gate& gate);
  void end_long(Gate& gate);
  std::optional<Placement> place(Bytes head, std::size_t payload_bytes, Gate& gate);
  void advance(std::size_t bytes) noexcept;

  const Limits limits_;
  const PeerProcess& peer_;
  const PeerWaker& waker_;
  RingReader ring_;
  SlabReader* const slab_;
  std::array<ReadSlot, reads_max>& slots_;
  const std::size_t chunks_;

  std::optional<LongMessage> long_;
  bool held_ = false;  // `long_` is whole, and waits for the gate to open.
  // What place() said of the message at hand, when it closed the gate.
  std::optional<Placement> placement_;
  bool taking_ = false;
  bool advanced_ = false;  // The peer is to be woken for the room that it has got.
  std::uint64_t arrived_ = 0;
};

}  // namespace hawser::transport::shm
