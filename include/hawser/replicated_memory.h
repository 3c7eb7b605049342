#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/hedging.h"
#include "hawser/memory.h"
#include "hawser/registered_buffer.h"
#include "hawser/task.h"

// Reads of the same bytes that several peers have; not part of hawser.h. docs/memory.md.
namespace hawser {

class Client;

// The copy that one peer has.
struct MemoryReplica {
  Client* client = nullptr;  // Connected to the peer by the application. Outlives the reads.
  RemoteRegion region = {};
};

// Counts of the reads of a ReplicatedMemory.
struct ReplicatedReads {
  std::uint64_t reads = 0;        // They have ended.
  std::uint64_t copies = 0;       // Made at another replica because the first one had no result after the usual time.
  std::uint64_t copies_used = 0;  // Their result was the first one.
  std::uint64_t failovers = 0;    // Made at another replica because one had failed.
};

// Reads bytes of which several peers have a copy, each in a region of equal size. A read begins at one replica. If it
// has no result after the usual time (HedgeOptions), it is also made at another one, and the first result counts. If it
// fails there, it is made at the next one at once, and at each replica at most once. A replica that fails, or that is
// slower than the other one three times in a row, gets no reads for a while (100 ms, doubled up to 10 s) unless all are
// like this.
//
// A read returns the bytes of one replica, not a mixture of several. Which one is not known: if the replicas are of
// different age, two reads may go back in time. Writes are not the business of this class: write to each replica, for
// example with when_quorum() (hawser/quorum.h).
//
// Each attempt receives into memory of its own, which is registered where a transport can use that, and the result is
// copied into that of the caller. So a slow device never writes into the caller's memory after a read has ended, and
// that memory needs no registration. At most four such buffers of up to 1 MiB are kept for each replica.
//
// Errors are those of RemoteMemory::read(). An error of one replica is that of the read only if all have failed, except
// for `cancelled`, `deadline_exceeded` and `invalid_argument`. Then the memory of the caller is unchanged.
//
// Used on the loop of its clients. A value: copies share the replicas and what is known about them. Tasks may outlive
// it, but not the clients.
class ReplicatedMemory {
 public:
  // Fails with `invalid_argument` if there is no replica, a client is null, the regions differ in size, or `hedging` is
  // out of its bounds.
  static Result<ReplicatedMemory> create(std::span<const MemoryReplica> replicas,
                                         const HedgeOptions& hedging = {.attempts_max = 2});

  // Reads into.size() bytes at `offset` of the regions into `into`. The timeout is that of the whole read.
  Task<Result<void>> read(std::uint64_t offset, MutableBytes into, RemoteOptions options = {}) const;

  ReplicatedReads counts() const noexcept;

 private:
  struct State;
  class Reading;
  explicit ReplicatedMemory(std::shared_ptr<State> state) noexcept;
  static Task<Result<void>> run(std::shared_ptr<State> state, std::uint64_t offset, MutableBytes into,
                                RemoteOptions options);

  std::shared_ptr<State> state_;
};

}  // namespace hawser
