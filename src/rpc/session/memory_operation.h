#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/transfer_schedule.h"
#include "hawser/error.h"
#include "hawser/transfer_batch.h"
#include "wire/memory_body.h"

namespace hawser::detail {

// One access to the peer's memory by frames, at one address until it has ended or been abandoned.
class MemoryOperation : public ScheduledTransfer<MemoryOperation> {
 public:
  wire::MemoryAction action = wire::MemoryAction::read;
  bool wants_crc = false;
  wire::RegionId region;
  // Read and write: the local memory and its places. Lasts as long as the operation; `base` is added to each offset.
  std::span<const TransferBatch::Run> runs = {};
  std::uint64_t base = 0;
  std::size_t bytes = 0;  // All runs together.
  // Atomics.
  wire::AtomicOperands operands = {};
  std::uint64_t previous = 0;

  // All frames have been given to the connection, so that later messages are behind them. Called before on_done().
  virtual void on_posted() = 0;
  // The last call. Must not destroy the session.
  virtual void on_done(const std::optional<Error>& error) = 0;

 protected:
  ~MemoryOperation() = default;

 private:
  friend class MemoryFrames;
  std::size_t next_run = 0;     // The next byte to be sent or asked for.
  std::size_t next_offset = 0;  // In that run.
  std::size_t pieces = 0;       // Frames without an answer.
  std::size_t confirmed = 0;    // Bytes.
  bool begun = false;           // A frame has been given to the connection,
  std::uint64_t mark = 0;       // and from this Connection::sent() on, the peer may have executed a part of it.
  std::optional<Error> failure;
};

}  // namespace hawser::detail
