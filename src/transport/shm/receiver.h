#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/loop.h"
#include "hawser/timer.h"
#include "hawser/transport/connection.h"
#include "transport/common/message_assembly.h"
#include "transport/common/payload_buffer.h"
#include "transport/shm/helpers.h"
#include "transport/shm/memory/direct_read.h"
#include "transport/shm/memory/ring.h"
#include "transport/shm/memory/slab.h"
#include "transport/shm/peer.h"
#include "wire/message.h"

namespace hawser::transport::shm {

// The peer violated the protocol.
std::unexpected<Error> protocol_violation(std::string_view what);
std::unexpected<Error> closed_by_peer();

// State that callbacks may change while messages are delivered.
struct Gate {
  MessageSink* sink = nullptr;
  bool paused = false;
  bool ended = false;

  bool open() const noexcept { return sink != nullptr && !paused && !ended; }
};

// A payload that the peer has offered to be read from its memory, and its message, which waits for the payload.
struct RingReading {
  enum class Stage : std::uint8_t {
    offered,  // Nothing was done yet.
    direct,   // A helper thread reads it.
    refused,  // It will not be read. The peer does not know this yet.
    parts,    // The peer copies it, part by part.
  };

  RingRecord record;  // Copy of the record that was checked.
  Stage stage = Stage::offered;
  PayloadBuffer payload;
  std::shared_ptr<DirectRead> job;
  std::uint32_t state = read_offered;  // State of the slot when `job` began.
  int attempts = 0;
  std::size_t progress = 0;  // Progress of `job` at the last check.
  std::size_t copied = 0;    // Bytes copied in parts.
};

// The resources for reading the peer's memory, if that is allowed. While a read is in progress, the connection must
// only wait.
struct ReadingMeans {
  std::shared_ptr<const PeerProcess> peer;  // Null: every payload is requested in parts.
  std::shared_ptr<Helpers> helpers;
  std::function<void()> go_on;  // Requests a call of take() as soon as possible.
};

// Receives the messages of one side. It takes messages from the peer's ring, and payloads from their places. Everything
// that the peer wrote is copied before it is checked. A protocol violation is an error.
class ShmReceiver {
 public:
  struct Limits {
    wire::MessageLimit message{0};
    std::size_t receive_buffer_bytes_min = 0;
    bool copies = false;  // ShmOptions::copy_received
  };
  // Reads from the ring and the slab that `side` writes.
  ShmReceiver(Loop& loop, std::shared_ptr<SharedMemory> memory, std::size_t side, const Limits& limits,
              const PeerWaker& waker, ReadingMeans means);
  ShmReceiver(const ShmReceiver&) = delete;
  ShmReceiver& operator=(const ShmReceiver&) = delete;
  ~ShmReceiver();

  // Called before the gate opens. `sink` names the account that pays for memory.
  void start(MessageSink& sink) noexcept { account_ = sink.receive_account(); }
  // Delivers the messages that are there, as long as the gate is open. True if there was one. An error says why no more
  // messages follow: the peer ended the connection or violated the protocol.
  Result<bool> take(Gate& gate);
  // True if there is something to receive.
  bool ready() noexcept {
    if (reading_) [[unlikely]]
      return reading_ready();
    return ring_.available() != 0 || ring_.broken() || held_;
  }
  // The peer's memory is being read: a message or an error will follow.
  bool busy() const noexcept { return reading_ && reading_->stage == RingReading::Stage::direct; }
  // The connection has ended. Memory that select_receive_buffer() returned is not accessed any more.
  void stop() noexcept;
  void revoke_receive_buffer(const std::byte* memory) noexcept;
  std::uint64_t arrived() const noexcept { return arrived_; }

 private:
  Result<void> take_one(Gate& gate);
  void take_whole(const RingRecord& record, const std::byte* head, Gate& gate);
  void take_whole_copy(const RingRecord& record, const std::byte* head, Gate& gate);
  Bytes head_of(const RingRecord& record, const std::byte* head);
  Result<void> take_from_slab(const RingRecord& record, Bytes head, Gate& gate);
  Result<void> begin_reading(const RingRecord& record, Bytes head, Gate& gate);
  Result<void> go_on_reading(Gate& gate);
  Result<bool> read_step();
  Result<bool> begin_read(ReadSlot& slot);
  Result<bool> end_direct_read(ReadSlot& slot);
  Result<bool> want_parts(ReadSlot& slot);
  Result<bool> take_read_part(ReadSlot& slot);
  Result<DirectRead::Source> source_of(const ReadSlot& slot, std::uint32_t state) const;
  bool reading_ready() const noexcept;
  void look_for_stall() noexcept;
  Result<void> begin_long(const RingRecord& record);
  Result<void> take_part(const RingRecord& record, Gate& gate);
  std::optional<ReceiveBuffer> select_receive_buffer(const RingRecord& record, Bytes head, Gate& gate);
  void advance(std::size_t bytes) noexcept;

  // A read of the peer's memory that makes no progress for this time is abandoned.
  static constexpr Duration read_stall_max = std::chrono::milliseconds(500);

  Loop& loop_;
  const Limits limits_;
  // The limit of messages that are delivered from the ring. With Limits::copies there are none.
  const wire::MessageLimit in_place_limit_;
  hawser::detail::ReceiveAccount* account_ = nullptr;
  const PeerWaker& waker_;
  RingReader ring_;
  SlabReader* const slab_;
  std::array<ReadSlot, reads_max>& slots_;
  const std::size_t chunks_;
  const std::byte* const part_;
  SideState& own_side_;
  const ProcessMark& mark_;
  ReadingMeans means_;

  std::optional<RingReading> reading_;
  MemberTimer<&ShmReceiver::look_for_stall> stall_{*this};
  MessageAssembly assembly_;  // The message that arrives in parts.
  bool held_ = false;         // It is complete, and waits for the gate to open.
  // The destination that select_receive_buffer() returned for the current message when it closed the gate.
  std::optional<ReceiveBuffer> selected_;
  // The record for which the destination was returned. It is a copy, because the peer may change the ring.
  RingRecord selected_record_;
  std::vector<std::byte> copied_;  // With Limits::copies: the head of the current message, or the whole message.
  bool taking_ = false;
  bool advanced_ = false;  // The peer has got room and must be notified.
  std::uint64_t arrived_ = 0;
};

}  // namespace hawser::transport::shm
