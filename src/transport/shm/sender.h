#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/shm_options.h"
#include "transport/shm/memory/ring.h"
#include "transport/shm/memory/slab.h"
#include "transport/shm/offered_payloads.h"
#include "transport/shm/peer.h"

namespace hawser::transport::shm {

// Sends the messages of one side. It writes messages into its ring. Their payloads go into the ring or the slab, or are
// offered to be read. Messages for which there is no room wait here, in order. An owner that is notified may call any
// function here, even clear().
class ShmSender {
 public:
  ShmSender(const SharedMemory& memory, std::size_t side, const ShmOptions& options, PeerWaker& waker);
  ShmSender(const ShmSender&) = delete;
  ShmSender& operator=(const ShmSender&) = delete;
  ~ShmSender() { clear(); }

  std::byte* reserve(std::size_t head_bytes);
  // Memory of the slab for the payload of the message whose head was reserved; PayloadMemory.
  std::byte* reserve_payload(std::size_t bytes) noexcept;
  // Memory of the slab for the application; LoanMemory. `memory` is the one of this sender.
  Buffer loan(std::size_t bytes, const std::shared_ptr<const SharedMemory>& memory) {
    return bytes <= eager_bytes_ ? Buffer() : slab_.loan(bytes, memory);
  }
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner);
  void copy_and_release(SendCompletion& owner);

  // Sends waiting messages as far as the peer has made room. True if it did anything.
  bool advance();
  // Makes the written messages visible to the peer.
  void publish();
  // Like publish(), at the end of a tick.
  void publish_rest() {
    early_bytes_ = std::min(early_bytes_first, early_publish_bytes_);
    publish();
  }
  // Called when no message will be committed any more. Writes the end record behind all messages: now or, once the peer
  // has made room, in advance().
  void finish();
  // The connection has ended: drops all messages and notifies the owners.
  void clear() noexcept;

  // True if something waits for the peer to make room or to read.
  bool waits() const noexcept { return !queue_.empty() || !offered_.empty() || end_ == End::wanted; }
  // True if advance() could do something.
  bool can_advance() const noexcept;
  // The peer has written invalid values.
  bool broken() const noexcept { return ring_.broken() || offered_.broken(); }

  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t sent() const noexcept { return sent_; }
  std::size_t backlog() const noexcept {
    return static_cast<std::size_t>(committed_ - sent_) - dropped_bytes_ + offered_.bytes();
  }

 private:
  // A tick publishes its first messages early, so that the peer works in parallel, and then larger and larger batches.
  static constexpr std::size_t early_bytes_first = 1024;

  struct Queued {
    Buffer head;
    Buffer copy;  // Holds a payload that has no owner.
    std::vector<ConstBuffer> pieces;
    SendCompletion* owner = nullptr;
    std::size_t payload_bytes = 0;
    bool begun = false;    // A part has been written.
    std::size_t done = 0;  // Bytes of head and payload that are written.
  };
  // The record behind all messages.
  enum class End : std::uint8_t {
    none,    // More messages may be committed.
    wanted,  // It is written when all messages are written and there is room.
    written,
  };
  enum class Written : std::uint8_t {
    all,       // Everything is written; the owner is notified.
    loaned,    // Everything is written, and the owner's memory is on loan.
    no_room,   // Nothing is written.
    by_parts,  // Nothing is written. The message must be written in parts.
  };

  void publish_early() {
    early_bytes_ = std::min(2 * early_bytes_, early_publish_bytes_);
    publish();
  }
  Written write(const std::byte* head, std::size_t head_bytes, std::span<const ConstBuffer> payload,
                std::size_t payload_bytes, SendCompletion* owner);
  std::size_t loaned_region(std::span<const ConstBuffer> payload, std::size_t payload_bytes) noexcept;
  bool offer_read(std::span<const ConstBuffer> payload, std::size_t payload_bytes, SendCompletion* owner,
                  RingRecord& record);
  bool write_parts(Queued& message);
  bool write_queue();
  bool write_end();
  void enqueue(std::size_t head_bytes, std::span<const ConstBuffer> payload, std::size_t payload_bytes,
               SendCompletion* owner);

  const std::size_t eager_bytes_;
  const std::size_t direct_read_bytes_min_;
  const std::size_t early_publish_bytes_;
  const std::size_t head_bytes_max_;  // Limit of a head that is written in one piece.
  PeerWaker& waker_;
  RingWriter ring_;
  SlabWriter slab_;
  OfferedPayloads offered_;

  std::deque<Queued> queue_;
  Buffer reserved_;  // The head between reserve() and commit(), unless it lies in the ring.
  std::size_t reserved_region_ = SlabWriter::none;  // The one of reserve_payload(), until it is committed.
  bool writing_queue_ = false;
  End end_ = End::none;
  bool cleared_ = false;
  // In bytes of heads, payloads and records: committed, the part of these in the ring, and the part of these that is
  // published.
  std::uint64_t committed_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t sent_ = 0;
  std::size_t dropped_bytes_ = 0;  // Bytes that clear() dropped.
  std::size_t early_bytes_ = early_bytes_first;
};

}  // namespace hawser::transport::shm
