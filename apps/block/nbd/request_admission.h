#pragma once

#include <cstddef>
#include <optional>
#include <stop_token>

#include "block/nbd/reply_queue.h"
#include "hawser/loop.h"
#include "hawser/sync.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser::block::nbd {

// As the semaphores count them.
constexpr std::size_t permitted_bytes(std::size_t bytes) noexcept {
  return memory_permits(bytes) * memory_permit_bytes;
}

// Limits of the requests of a connection that are in progress: their number, and the memory for their data. All
// connections together have a limit of the memory too.
class RequestAdmission {
 public:
  // The request that waits for memory of all connections.
  struct Waiting {
    Time since;
    std::size_t bytes;
  };

  // `memory` has the permits of the bytes of all connections.
  RequestAdmission(Loop& loop, std::size_t requests_max, std::size_t bytes_max, Semaphore& memory)
      : loop_(loop), slots_(requests_max), bytes_(memory_permits(bytes_max)), memory_(memory) {}

  Permit try_slot() noexcept { return slots_.try_acquire(); }
  // Waits until the connection may have one more request in progress. False after `stopped`.
  Task<bool> acquire_slot(PendingRequest& pending, std::stop_token stopped);
  // Waits until the connection, and then all connections together, may have so many bytes more. False after `stopped`.
  Task<bool> acquire_memory(PendingRequest& pending, std::size_t bytes, std::stop_token stopped);

  const std::optional<Waiting>& waiting() const noexcept { return waiting_; }

 private:
  Loop& loop_;
  Semaphore slots_;
  Semaphore bytes_;
  Semaphore& memory_;
  std::optional<Waiting> waiting_;
};

}  // namespace hawser::block::nbd
