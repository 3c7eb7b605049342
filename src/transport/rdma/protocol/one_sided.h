#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/transfer_schedule.h"
#include "hawser/bytes.h"
#include "hawser/transport/remote_memory.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/bulk_window.h"
#include "transport/rdma/protocol/queue.h"
#include "transport/rdma/protocol/work_queue.h"

namespace hawser::transport::rdma {

struct OneSidedOptions {
  std::uint64_t peer_domain = 0;  // 0: the peer exposes nothing.
  std::size_t operations_max = 256;
  std::size_t part_bytes_max = std::size_t{2} << 20;  // Limit of one work request.
  std::size_t segments_max = 1;                       // Limit of one work request; at most segments_most.
  std::size_t parts_max = 16;                         // Limit of outstanding work requests.
  const exec::Poller* clock = nullptr;                // For the window of bulk operations.
};

// The application's reads and writes of the peer's memory, next to the messages. They are executed in the order of a
// TransferSchedule and divided into parts, one work request each. A part is contiguous in the peer's memory and has a
// segment for each piece of local memory. Only the last part of an operation is signalled, and as many before it as the
// limits need. No loop.
class OneSided final : public OneSidedMemory {
 public:
  static constexpr std::size_t segments_most = 16;
  // Each priority has a window of its own: bulk operations a BulkWindow. Interactive operations have busy_window_bytes
  // while messages are sent between their parts, so that each waits for at most these. Otherwise parts are large.
  static constexpr std::size_t busy_part_bytes = std::size_t{64} << 10;
  static constexpr std::size_t busy_window_bytes = std::size_t{256} << 10;
  static constexpr std::size_t window_bytes = std::size_t{4} << 20;
  // The connection is busy from this number of packets on that are sent within a period of so many bytes, and until a
  // period with fewer.
  static constexpr std::uint64_t busy_sends = 2;
  static constexpr std::size_t period_bytes = 4 * window_bytes;

  OneSided(WorkQueue& work_queue, std::shared_ptr<MemoryPool> pool, const OneSidedOptions& options)
      : work_queue_(work_queue), pool_(std::move(pool)), options_(options), bulk_window_(options.clock) {}
  OneSided(const OneSided&) = delete;
  OneSided& operator=(const OneSided&) = delete;
  ~OneSided() = default;

  std::uint64_t domain() const noexcept override { return options_.peer_domain; }
  Result<void> start(RemoteOperation& operation) override;
  void abandon(RemoteOperation& operation) noexcept override;

  // Posts as many parts as there is room for.
  void post();
  // Called after completions, possibly of parts.
  void on_completed();
  // The peer's device refused the request with this id. False if the request is none of these.
  bool refused(std::uint64_t id) noexcept;
  // Notifies all remaining operations. Memory that the device may still access is held until this is destroyed.
  void end(const Error& reason);
  bool idle() const noexcept { return open_.empty(); }

 private:
  // Registered memory of the application, which is held.
  class Held {
   public:
    Held() noexcept = default;
    explicit Held(const MemoryPool::PayloadBlock& of) noexcept
        : memory_(of.memory.data, of.memory.bytes),
          local_key_(of.memory.local_key),
          dmabuf_(of.dmabuf),
          block_(of.block) {}
    Held(Held&& other) noexcept
        : memory_(other.memory_),
          local_key_(other.local_key_),
          dmabuf_(other.dmabuf_),
          block_(std::exchange(other.block_, nullptr)) {}
    Held& operator=(Held&& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(local_key_, other.local_key_);
      std::swap(dmabuf_, other.dmabuf_);
      std::swap(block_, other.block_);
      return *this;
    }
    ~Held() {
      if (block_ != nullptr) block_->release();
    }
    std::uint32_t local_key() const noexcept { return local_key_; }
    // The processor cannot access the memory, so its bytes are never sent inline.
    bool dmabuf() const noexcept { return dmabuf_; }
    // Bytes from `data` to the end of the memory; 0 if it lies elsewhere.
    std::size_t bytes_from(const std::byte* data) const noexcept {
      const auto offset = static_cast<std::size_t>(data - memory_.data());
      return data < memory_.data() || offset >= memory_.size() ? 0 : memory_.size() - offset;
    }

   private:
    MutableBytes memory_;
    std::uint32_t local_key_ = 0;
    bool dmabuf_ = false;
    Block* block_ = nullptr;
  };
  struct Entry : ScheduledTransfer<Entry> {
    RemoteOperation* operation = nullptr;  // Null: abandoned.
    Opcode opcode = Opcode::read;
    std::span<const TransferBatch::Run> runs;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::vector<Held> held;  // All local memory of the runs.
    std::shared_ptr<const void> local_use;
    std::size_t last_held = 0;  // Index of the one that was used last.
    std::size_t bytes = 0;      // Bytes to be posted, the posted ones included.
    std::size_t posted = 0;
    std::size_t confirmed = 0;
    std::size_t run = 0;  // The next byte to be posted.
    std::size_t offset = 0;
    std::uint64_t first_id = 0;
    std::uint64_t last_id = 0;  // Id of the last part.
    std::list<Entry>::iterator self;
    bool open = false;
  };
  using Entries = std::list<Entry>;
  struct Part {
    std::uint64_t id = 0;
    std::size_t bytes = 0;
    Entry* entry = nullptr;
  };

  bool hold(Entry& entry, std::byte* memory, std::size_t bytes);
  static const Held* find(Entry& entry, const std::byte* memory, std::size_t from) noexcept;
  bool has_window(TransferPriority priority) noexcept;
  std::size_t window(TransferPriority priority) const noexcept;
  std::size_t part_bytes(TransferPriority priority) const noexcept;
  std::size_t& in_flight_bytes(TransferPriority priority) noexcept {
    return priority == TransferPriority::bulk ? bulk_bytes_ : interactive_bytes_;
  }
  void post_part(Entry& entry);
  void finish_if_done(Entry& entry);
  void post_marker();
  void wake_stalled();

  WorkQueue& work_queue_;
  const std::shared_ptr<MemoryPool> pool_;
  const OneSidedOptions options_;
  Entries open_;                       // In the order of the calls.
  Entries unused_;                     // Their memory is used again.
  TransferSchedule<Entry> schedule_;   // Contains the operations that are not posted to their end.
  Queue<Part> parts_;                  // Outstanding, in the order in which they were posted.
  std::size_t interactive_bytes_ = 0;  // Bytes of outstanding parts, of each priority.
  std::size_t bulk_bytes_ = 0;
  std::size_t unsignalled_parts_ = 0;  // Parts behind the last signalled one.
  std::size_t unsignalled_bytes_ = 0;
  std::size_t period_posted_ = 0;   // Bytes posted since the number of packets
  std::uint64_t period_sends_ = 0;  // was this.
  std::uint64_t interactive_ = 0;   // Number of interactive operations so far.
  std::uint64_t idle_sends_ = 0;    // Number of packets when the last operation ended.
  bool busy_ = false;               // Interactive operations have a short window.
  BulkWindow bulk_window_;
  std::uint64_t refused_ = 0;
  bool posting_ = false;
  bool ended_ = false;
};

}  // namespace hawser::transport::rdma
