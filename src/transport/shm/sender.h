#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/shm_options.h"
#include "transport/shm/memory/ring.h"
#include "transport/shm/memory/slab.h"
#include "transport/shm/peer.h"

namespace hawser::transport::shm {

// What one side sends: puts messages into its ring, their payloads there too, or into the slab, or offers them to be
// read. What finds no room waits here, in order. Owners may do anything to it, even clear() it, when they are told.
class Sender {
 public:
  Sender(const SharedMemory& memory, std::size_t side, const ShmOptions& options, PeerWaker& waker) noexcept;
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  ~Sender() { clear(); }

  std::byte* reserve(std::size_t head_bytes);
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner);
  void copy_and_release(SendCompletion& owner);

  // Goes on with what waits, as far as the peer has made room; true if it did anything.
  bool advance();
  // Shows the peer what was written.
  void publish();
  // The same at the end of a tick.
  void publish_rest() {
    early_bytes_ = std::min(early_bytes_first, early_publish_bytes_);
    publish();
  }
  // Nothing is committed any more: writes the end behind all messages, now or, once the peer makes room, in advance().
  void finish();
  // The connection has ended: drops all and tells the owners.
  void clear() noexcept;

  // Something waits for the peer to make room or to read.
  bool waits() const noexcept { return !queue_.empty() || !reads_.empty() || (finishing_ && !finished_); }
  // What waits may go on.
  bool can_advance() const noexcept;
  // The peer has written what can't be true.
  bool broken() const noexcept { return ring_.broken() || broken_; }

  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t sent() const noexcept { return sent_; }
  std::size_t backlog() const noexcept {
    return static_cast<std::size_t>(committed_ - sent_) - dropped_bytes_ + reading_bytes_;
  }

 private:
  // A tick shows its first messages soon, so that the peer works while we go on, and then ever more at a time.
  static constexpr std::size_t early_bytes_first = 1024;

  struct Queued {
    Buffer head;
    Buffer copy;  // Of a payload that nobody owns.
    std::vector<ConstBuffer> pieces;
    SendCompletion* owner = nullptr;
    std::size_t payload_bytes = 0;
    bool begun = false;    // By parts.
    std::size_t done = 0;  // Of head and payload.
  };
  // A payload that the peer is to read from its owner's memory.
  struct Read {
    std::size_t slot = 0;
    SendCompletion* owner = nullptr;
    Buffer copy;  // Where it has moved to.
    std::size_t bytes = 0;
    std::size_t count = 0;
    std::array<ConstBuffer, read_pieces_max> pieces;
    std::size_t done = 0;  // Bytes copied for a peer that wants it in parts.
  };
  enum class Written : std::uint8_t {
    all,       // The owner is to be told.
    loaned,    // All, and the owner's memory is in use.
    no_room,   // Nothing.
    by_parts,  // Nothing, and it has to go by parts.
  };

  void publish_early() {
    early_bytes_ = std::min(2 * early_bytes_, early_publish_bytes_);
    publish();
  }
  Written write(const std::byte* head, std::size_t head_bytes, std::span<const ConstBuffer> payload,
                std::size_t payload_bytes, SendCompletion* owner);
  bool offer_read(std::span<const ConstBuffer> payload, std::size_t payload_bytes, SendCompletion* owner,
                  Record& record);
  bool write_parts(Queued& message);
  bool write_queue();
  bool take_reads();
  void fill_part(Read& read);
  bool write_end();
  void enqueue(std::size_t head_bytes, std::span<const ConstBuffer> payload, std::size_t payload_bytes,
               SendCompletion* owner);

  const std::size_t eager_bytes_;
  const std::size_t direct_read_bytes_min_;
  const std::size_t early_publish_bytes_;
  const std::size_t head_bytes_max_;  // In one piece.
  PeerWaker& waker_;
  RingWriter ring_;
  SlabWriter slab_;
  std::array<ReadSlot, reads_max>& slots_;
  std::byte* const part_;
  const ProcessMark& mark_;

  std::deque<Queued> queue_;
  std::vector<Read> reads_;
  std::vector<std::size_t> free_slots_;
  Buffer reserved_;  // The head between reserve() and commit(), unless it lies in the ring.
  bool writing_queue_ = false;
  bool finishing_ = false;
  bool finished_ = false;  // The end is written.
  bool broken_ = false;
  bool ended_ = false;
  // In bytes of heads, payloads and records: committed, of these in the ring, of these shown to the peer.
  std::uint64_t committed_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t sent_ = 0;
  std::size_t dropped_bytes_ = 0;  // By clear().
  std::size_t reading_bytes_ = 0;
  std::size_t early_bytes_ = early_bytes_first;
};

}  // namespace hawser::transport::shm
