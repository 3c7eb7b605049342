#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hawser/memory.h"

// Access to a peer's memory over several connections, for example one for each RDMA device; not part of hawser.h.
// docs/memory.md.
namespace hawser {

// Options of StripedMemory. A value that is out of range is replaced by the nearest limit.
struct StripeOptions {
  TransferPriority priority = TransferPriority::interactive;  // On each path.
  std::size_t piece_bytes = std::size_t{256} << 10;           // 4 KiB to 1 GiB. An operation is cut into such pieces.
  std::size_t pieces_per_path = 8;  // 1 to 1024: pieces of one operation that are in progress on one path.
  // A path that has failed gets no piece for this time. The time doubles with each failure, up to the limit, until a
  // piece succeeds.
  Duration retry_min = std::chrono::milliseconds(100);
  Duration retry_max = std::chrono::seconds(10);
  // Pieces of writes whose connection ended in the midst go over another path if a device executed them. If they were
  // sent by frames, the peer may still read frames of the ended connection, which would overwrite newer data. So the
  // operation ends with outcome_unknown. True: such pieces go over another path too.
  bool retry_frame_writes = false;
};

// One path of a StripedMemory.
struct StripePath {
  bool usable = false;      // It is connected, and it is not waiting after a failure.
  bool one_sided = false;   // Devices execute its reads and writes.
  std::uint64_t bytes = 0;  // Confirmed bytes.
  // Pieces that failed on this path and went over others, or would have.
  std::uint64_t failures = 0;
  std::size_t outstanding_bytes = 0;  // In progress.
  double bytes_per_second = 0;        // Measured by completions; 0 while it is unknown.
};

// Reads and writes a peer's exposed memory over several connections to it ("paths"). Pieces of each operation go to the
// path on which they are expected to complete first, by the measured rate of each path and the bytes in progress on it.
// If a path fails, its pieces go over the others. They are sent again only when no device accesses their local memory
// any more.
//
// Each path is a client that the application has connected to the same server. A connection uses the RDMA device that
// has the local address of its byte stream, so connect one client to each address of the server. All clients belong to
// one loop and have equal RdmaOptions, so that their RegisteredBuffers are known to the devices of all paths. A path
// whose client is not connected gets no pieces; connect the client again to use the path again.
//
// Operations and errors are those of RemoteMemory, with these differences. There is no order between operations, nor
// between an operation and a call that is sent before it has ended. Atomics are not idempotent: they are made over one
// path, by its RemoteMemory. An operation fails if all paths have failed.
//
// Used on the clients' loop. A value: copies share the paths. The clients must outlive its tasks.
class StripedMemory {
 public:
  // `paths` must not be empty, and its elements must not be null; otherwise std::invalid_argument is thrown.
  explicit StripedMemory(std::span<Client* const> paths, const StripeOptions& options = {});

  Task<Result<void>> read(RemoteRegion region, std::uint64_t offset, MutableBytes into, RemoteOptions options = {});
  Task<Result<void>> write(RemoteRegion region, std::uint64_t offset, Bytes from, RemoteOptions options = {});
  // A batch must not change until the operation has ended.
  Task<Result<void>> read(RemoteRegion region, const TransferBatch& batch, RemoteOptions options = {},
                          std::uint64_t base = 0);
  Task<Result<void>> write(RemoteRegion region, const TransferBatch& batch, RemoteOptions options = {},
                           std::uint64_t base = 0);

  // The paths, in the order of the constructor's.
  std::vector<StripePath> paths() const;

 private:
  struct State;
  struct Transfer;
  struct Piece;

  static Task<Result<void>> run(std::shared_ptr<State> state, detail::RemoteRequest request);
  static Task<void> carry(Transfer& transfer, std::size_t index, std::unique_ptr<Piece> piece);
  static Task<Result<void>> attempt(Transfer& transfer, std::size_t index, Piece& piece,
                                    std::weak_ptr<const void>& local_use);

  std::shared_ptr<State> state_;
};

}  // namespace hawser
