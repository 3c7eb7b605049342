#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/records.h"
#include "transport/rdma/protocol/transfers.h"

namespace hawser::transport::rdma {

// Offers payloads to the peer, which reads them from this side's memory: makes the rendezvous records, and holds the
// memory until the peer is done.
class RendezvousOffers {
 public:
  // Pieces up to this size are carried within a record instead of being read.
  static constexpr std::size_t literal_bytes_max = 256;
  // Limit of copies that wait for the peer to read them. They count as sent.
  static constexpr std::size_t copies_bytes_max = std::size_t{8} << 20;

  // A record has at most `record_bytes_max` bytes. At most `max` payloads are offered at a time.
  RendezvousOffers(std::shared_ptr<MemoryPool> pool, std::size_t record_bytes_max, std::size_t max)
      : pool_(std::move(pool)), record_bytes_max_(record_bytes_max), transfers_(max) {}

  // True while no more payloads may be offered.
  bool full() const noexcept { return transfers_.full(); }
  // Payloads that the peer has not finished.
  std::size_t open() const noexcept { return transfers_.open(); }

  // Returns the record of a message whose payload lies in memory that the peer may read. `owner` is notified when the
  // peer is done. Returns an empty buffer, and offers nothing, if a part of the payload does not lie in such memory, or
  // if the record would be too long.
  Buffer offer(Bytes head, std::span<const ConstBuffer> payload, std::size_t payload_bytes, SendCompletion* owner) {
    return make_record(head, payload, payload_bytes, owner, 0);
  }
  // True if a copy of this size is within copies_bytes_max.
  bool may_copy(std::size_t payload_bytes) const noexcept {
    return transfers_.copied_bytes() + payload_bytes <= copies_bytes_max;
  }
  // As offer(), for a copy of the payload. Returns an empty buffer if there is no memory for the copy.
  Buffer offer_copy(Bytes head, std::span<const ConstBuffer> payload, std::size_t payload_bytes);

  // The peer has finished a payload. Returns false if there is no such payload.
  [[nodiscard]] bool end(std::uint32_t transfer) { return transfers_.end(transfer); }
  // As Transfers::forget() and Transfers::release_owners().
  void forget(const SendCompletion& owner) noexcept { transfers_.forget(owner); }
  void release_owners() noexcept { transfers_.release_owners(); }

 private:
  Buffer make_record(Bytes head, std::span<const ConstBuffer> payload, std::size_t payload_bytes, SendCompletion* owner,
                     std::size_t copied_bytes);

  const std::shared_ptr<MemoryPool> pool_;
  const std::size_t record_bytes_max_;
  Transfers transfers_;
  // Kept for their capacity, so that the steady state allocates nothing.
  std::vector<Block*> blocks_;
  std::vector<RdmaRemoteBuffer> pieces_;
};

}  // namespace hawser::transport::rdma
