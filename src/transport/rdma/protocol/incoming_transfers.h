#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "transport/common/payload_buffer.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/queue.h"
#include "transport/rdma/protocol/records.h"
#include "transport/rdma/protocol/sender.h"
#include "transport/rdma/protocol/staging_memory.h"
#include "transport/rdma/protocol/work_queue.h"

namespace hawser::transport::rdma {

// A payload that this side reads from the peer's memory.
struct IncomingTransfer {
  std::uint32_t id = 0;
  std::vector<RdmaRemoteBuffer> pieces;
  std::size_t piece = 0;  // Next piece to be read, from `offset` on.
  std::size_t offset = 0;
  std::size_t size = 0;
  std::size_t asked = 0;
  std::size_t done = 0;
  PayloadBuffer payload;
  RegisteredMemory direct;  // Destination of the read if it is registered.
  // Holds `direct`, even when the payload is discarded, because the device may still write there.
  Block* block = nullptr;
  bool selected = false;  // The sink has selected the destination.
  std::size_t ahead = 0;  // Bytes that are counted as read ahead.
  bool complete() const noexcept { return done == size; }
};

struct IncomingTransferOptions {
  std::size_t read_bytes_max = std::size_t{1} << 20;
  std::size_t reads_max = 16;
  std::size_t ahead_bytes_max = std::size_t{8} << 20;  // Limit of payload bytes that are read before their turn.
  std::size_t staging_bytes = 256 * 1024;
};

// Reads the payloads that the peer offers, in the order of their records, into memory that is registered if possible.
// Notifies the peer when a payload has been read or is not wanted. No loop, no clock, and no message is delivered here.
class IncomingTransfers {
 public:
  // `floor` is staging memory. It returns to the pool.
  IncomingTransfers(WorkQueue& work_queue, RdmaSender& sender, std::shared_ptr<MemoryPool> pool,
                    const RegisteredMemory& floor, const IncomingTransferOptions& options);
  IncomingTransfers(const IncomingTransfers&) = delete;
  IncomingTransfers& operator=(const IncomingTransfers&) = delete;
  // The device must not write any more.
  ~IncomingTransfers();

  bool empty() const noexcept { return transfers_.empty(); }
  std::size_t size() const noexcept { return transfers_.size(); }
  IncomingTransfer& front() noexcept { return transfers_.front(); }
  // Bytes of the transfers that were begun ahead of their turn.
  std::size_t ahead_bytes() const noexcept { return ahead_bytes_; }

  // Adds a transfer behind the others. `ahead`: its turn has not come, and the sink has not selected the memory of the
  // payload. Returns false, and adds nothing, if there is no registered memory or no share of it to read ahead.
  bool begin(const RendezvousTable& table, PayloadBuffer payload, bool ahead);
  // Asks for no more data of a transfer whose payload was discarded. A read that was posted into registered memory of
  // the caller cannot be cancelled.
  void cut_short(IncomingTransfer& transfer) noexcept;
  // As cut_short(), for the transfers into this memory of the caller.
  void revoke(const std::byte* memory) noexcept;
  // Ends the first transfer, which is complete.
  void pop_front() noexcept;
  // Uncharges the accounts of all payloads, which may be destroyed before this.
  void release_charges() noexcept;

  // Posts the reads that are due, as far as there are slots.
  void post_reads();
  // Returns true once after cut_short() has completed a transfer, because no completion reports it.
  bool take_cut_short() noexcept { return std::exchange(cut_short_, false); }
  // Takes the data of completed reads.
  struct Progress {
    std::size_t bytes = 0;
    bool completed = false;  // A transfer is complete now.
  };
  Progress take_completed();

 private:
  struct Read {
    std::uint64_t id = 0;
    IncomingTransfer* transfer = nullptr;
    std::size_t at = 0;
    std::size_t bytes = 0;
    std::size_t staging = 0;  // Number of the range of staging memory, or 0 for none.
  };

  bool begin_payload(IncomingTransfer& transfer, bool ahead);
  IncomingTransfer& spare();
  void drop(IncomingTransfer& transfer) noexcept;

  WorkQueue& work_queue_;
  RdmaSender& sender_;
  const std::shared_ptr<MemoryPool> pool_;
  const IncomingTransferOptions options_;
  std::list<IncomingTransfer> transfers_;  // Sorted by the order of their records.
  std::list<IncomingTransfer> spare_;      // Kept for their capacity, so that the steady state allocates nothing.
  Queue<Read> reads_;
  StagingMemory staging_;
  std::size_t ahead_bytes_ = 0;
  bool cut_short_ = false;  // See take_cut_short().
};

}  // namespace hawser::transport::rdma
