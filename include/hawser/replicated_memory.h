#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/hedging.h"
#include "hawser/memory.h"

// Reads of bytes of which several owners have a copy; not part of hawser.h. docs/memory.md.
namespace hawser {

// One owner of a copy.
struct MemoryReplica {
  Client* client = nullptr;  // The application connects it to the owner, and again after its connection has ended.
  RemoteRegion region;       // As the owner gave it. The regions of all owners have the same size.
};

// Options of ReplicatedMemory. A value that is out of range is replaced by the nearest limit.
struct ReplicaOptions {
  TransferPriority priority = TransferPriority::interactive;
  // When a read begins at another owner too. The copies of a read are at different owners. A percentile is that of
  // earlier reads of about the same size: of less than 2, 4, 8 KiB and so on.
  HedgeOptions hedging = {.attempts_max = 2};
  // Memory for the bytes of reads, for each owner: 4 KiB to 1 TiB. It is allocated by the first reads of a size and is
  // used again by later ones. A longer read fails with limit_exceeded.
  std::size_t landing_bytes_max = std::size_t{64} << 20;
  // An owner that has failed, or that has lost three reads in a row (ReplicaState::losses), is suspended for this time:
  // the others are read first. Then one read at a time tries it again. The time doubles until one succeeds.
  Duration suspend_min = std::chrono::milliseconds(100);
  Duration suspend_max = std::chrono::seconds(10);
};

// Options of one read.
struct ReplicaReadOptions {
  RemoteOptions access = {};  // Its timeout and its token concern the whole read.
  // Called with the bytes of an owner, on the loop. False: the read takes those of another owner. For example, it
  // compares a version in the bytes with the newest one that the caller knows, or verifies a checksum. The read throws
  // what it throws. Empty: all bytes are accepted.
  std::function<bool(Bytes)> accept = {};
};

// The result of a read.
struct ReplicaRead {
  Buffer bytes;           // Nobody changes them. While it exists, it counts toward landing_bytes_max.
  std::size_t owner = 0;  // Index of the owner from which all of them came.
};

// One owner of a ReplicatedMemory.
struct ReplicaState {
  bool connected = false;
  bool suspended = false;   // Others are read first. Also after stale_handle, until set_region().
  std::uint64_t reads = 0;  // Reads whose result came from here.
  // Reads that timed out, that began later at another owner, which was faster, or that took longer than usual and had
  // no copy because of the budget.
  std::uint64_t losses = 0;
  std::uint64_t failures = 0;  // Reads that failed here and went to others, or would have.
  std::uint64_t refused = 0;   // Results that ReplicaReadOptions::accept refused.
};

// Reads bytes of which several owners have a copy in exposed memory. A read begins at the first owner that is connected
// and not suspended. It begins at the next one as well when the usual time has passed (ReplicaOptions::hedging), and at
// once when an owner fails or its bytes are refused. The first accepted result counts, and all other accesses are
// abandoned before the read returns.
//
// No owner, device or connection writes into memory of the caller. Each access has memory of its own, which is
// registered with the devices of that owner's client. It is used again when nobody uses it any more, so a device that
// completes an abandoned access later changes nothing that the caller sees.
//
// All bytes of a result come from one owner. There is no order between owners: a read may return older bytes than an
// earlier read, and a part of a write that is in progress, as reads of RemoteMemory may. ReplicaReadOptions::accept can
// refuse both. How the copies are kept equal is left to the application.
//
// Used on the clients' loop. A value: copies share the owners. The clients must outlive the tasks of its reads. A task
// that is destroyed abandons its accesses.
//
// Errors of reads: `invalid_argument` for a range outside of the regions, `limit_exceeded`, `cancelled` and
// `deadline_exceeded`. If no owner delivers accepted bytes, the code that all owners have in common, otherwise
// `unavailable`; refused bytes count as `unavailable`. The text has the reason of each owner.
class ReplicatedMemory {
 public:
  // The first owner is preferred. Different orders at different readers spread the reads. `invalid_argument` if there
  // is no owner, or more than 64, if a client is null, or if the regions have different sizes or are not readable.
  static Result<ReplicatedMemory> create(std::span<const MemoryReplica> owners, const ReplicaOptions& options = {});

  // Reads `bytes` bytes at `offset` of the regions, without a copy.
  Task<Result<ReplicaRead>> read(std::uint64_t offset, std::size_t bytes, ReplicaReadOptions options = {});
  // Reads into.size() bytes and copies them to `into`, which is any memory. It must stay valid until the read has
  // ended, and changes only if the read succeeds.
  Task<Result<void>> read_into(std::uint64_t offset, MutableBytes into, ReplicaReadOptions options = {});

  // Replaces the region of an owner, for example after its restart, for reads that begin from now on, and ends its
  // suspension. `invalid_argument` for an index that does not exist, and for another size.
  Result<void> set_region(std::size_t owner, const RemoteRegion& region);

  std::vector<ReplicaState> owners() const;  // In the order of create().
  std::uint64_t copies() const noexcept;     // Accesses that began because the usual time had passed.

 private:
  struct State;
  struct Run;
  explicit ReplicatedMemory(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  static Task<Result<ReplicaRead>> run(std::shared_ptr<State> state, std::uint64_t offset, std::size_t bytes,
                                       ReplicaReadOptions options);
  static Task<Result<void>> run_into(std::shared_ptr<State> state, std::uint64_t offset, MutableBytes into,
                                     ReplicaReadOptions options);

  std::shared_ptr<State> state_;
};

}  // namespace hawser
