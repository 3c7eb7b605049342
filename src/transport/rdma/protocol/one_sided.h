#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "hawser/bytes.h"
#include "hawser/transport/remote_memory.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/protocol/queue.h"
#include "transport/rdma/protocol/work_queue.h"

namespace hawser::transport::rdma {

struct OneSidedOptions {
  std::uint64_t peer_domain = 0;  // 0: the peer exposes nothing.
  std::size_t operations_max = 256;
  std::size_t part_bytes_max = std::size_t{1} << 20;
  std::size_t parts_max = 16;  // Limit of outstanding parts.
};

// The application's reads and writes of the peer's memory, next to the messages. They are executed in the order of the
// calls and divided into parts. No loop, no clock.
class OneSided final : public RemoteMemory {
 public:
  OneSided(WorkQueue& work_queue, std::shared_ptr<MemoryPool> pool, const OneSidedOptions& options)
      : work_queue_(work_queue), pool_(std::move(pool)), options_(options) {}
  OneSided(const OneSided&) = delete;
  OneSided& operator=(const OneSided&) = delete;
  ~OneSided();

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
  bool idle() const noexcept { return entries_.empty(); }

 private:
  struct Entry {
    RemoteOperation* operation = nullptr;  // Null: abandoned.
    RemoteOperation::Kind kind = RemoteOperation::Kind::read;
    Segment memory;  // The length is not used.
    std::size_t bytes = 0;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    Block* block = nullptr;  // Holds the memory.
    std::size_t posted = 0;
    std::uint64_t first_id = 0;
    std::uint64_t last_id = 0;  // Id of the last part.
  };

  WorkQueue& work_queue_;
  const std::shared_ptr<MemoryPool> pool_;
  const OneSidedOptions options_;
  Queue<Entry> entries_;
  std::size_t next_ = 0;  // Index in entries_: entries before it are posted.
  Queue<std::uint64_t> parts_;
  std::uint64_t refused_ = 0;
  bool posting_ = false;
  bool ended_ = false;
};

}  // namespace hawser::transport::rdma
