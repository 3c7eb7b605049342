#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/client.h"
#include "hawser/error.h"
#include "hawser/registered_buffer.h"
#include "hawser/task.h"
#include "hawser/time.h"
#include "hawser/transfer_batch.h"

// Access to a peer's memory without a handler; not part of hawser.h. docs/memory.md.
namespace hawser {

class Context;

namespace detail {
class RemoteAccess;
class ReplySink;
struct RemoteRequest;
}  // namespace detail

struct RemoteOptions {
  // Time after which an access fails with deadline_exceeded. The peer, or a device, may still execute it afterwards.
  Duration timeout = std::chrono::seconds(30);
  // Reads: the owner sends a CRC32C of the bytes, which is verified before the read succeeds. The access goes by frames
  // on every transport, because no device computes one.
  bool checksum = false;
  // Cancels the access with `cancelled`, as destroying its task does. Null: nothing cancels it. Must outlive the
  // access.
  const std::stop_token* token = nullptr;
};

// How the connection accesses the peer's memory.
struct RemoteCapabilities {
  bool reachable = false;          // Accesses are possible: by a device, or by frames that the peer's loop serves.
  bool one_sided = false;          // Reads and writes are executed by devices, without the peer's processor.
  bool one_sided_atomics = false;  // Never: the owner's processor executes all atomics.
  std::size_t operations_max = 0;  // Limit of the accesses in progress on the connection, by frames.
  std::size_t window_bytes = 0;    // Bytes of each priority that are on their way by frames at any time.
};

// Reads and changes a peer's exposed memory without a handler: a client accesses its server's memory, or a handler
// accesses its caller's memory. RDMA devices execute reads and writes; over every other transport the peer's loop
// serves them. Used on the connection's loop. A value: its tasks and copies must not outlive the client or context.
//
// Interactive operations of one connection begin in order. A write is complete before later writes take effect, but a
// read may see the data of a later write. Bulk operations have no order (TransferPriority). A call finds written what
// had ended before it was sent; over RDMA, also what had begun. Atomics are atomic against other remote atomics only.
//
// Over RDMA the local memory must lie within a RegisteredBuffer. It must stay valid and unchanged until the operation
// has ended. After an operation was abandoned (its task destroyed, cancelled or timed out), in_use() of the buffer
// shows whether a device or UCX still uses the memory; over other transports nobody does.
//
// Errors of all operations:
//  - `invalid_argument`: the access is outside of the region or the buffer, the region does not allow it, or an atomic
//    is not aligned. Nothing was executed.
//  - `stale_handle`: the region is not exposed any more, or not by this peer. Over RDMA, if the device detects it, the
//    connection ends.
//  - `overloaded`: operations_max or RdmaOptions::one_sided_max is reached, or the peer has no memory for the access.
//  - `unavailable`: there is no connection that can carry it, or the peer is of an older version. Also if the access
//    needs a processor and one of the memories is that of RegisteredBuffer::dmabuf().
//  - `not_sent`: the connection ended before the operation began.
//  - `outcome_unknown` (writes, atomics) or `unavailable` (reads): the connection ended later.
//  - `deadline_exceeded`, `cancelled`: RemoteOptions. A write or an atomic may have been, or may still be, executed.
// A transfer of several pieces may fail in the midst; the error's text says how many bytes were confirmed.
class RemoteMemory {
 public:
  // Reads and writes of large batches that nobody waits for are of priority `bulk`, so that others precede them.
  explicit RemoteMemory(Client& client, TransferPriority priority = TransferPriority::interactive) noexcept
      : client_(&client), priority_(priority) {}
  explicit RemoteMemory(const Context& context, TransferPriority priority = TransferPriority::interactive) noexcept;

  RemoteCapabilities capabilities() const;

  // Reads into.size() bytes at `offset` of the region into `into`.
  Task<Result<void>> read(RemoteRegion region, std::uint64_t offset, MutableBytes into, RemoteOptions options = {});
  // Writes `from` at `offset` of the region. Completes when the data is in the peer's memory.
  Task<Result<void>> write(RemoteRegion region, std::uint64_t offset, Bytes from, RemoteOptions options = {});
  // The same for all blocks of a batch, which must not change until the operation has ended. `base` is added to the
  // offset of each block.
  Task<Result<void>> read(RemoteRegion region, const TransferBatch& batch, RemoteOptions options = {},
                          std::uint64_t base = 0);
  Task<Result<void>> write(RemoteRegion region, const TransferBatch& batch, RemoteOptions options = {},
                           std::uint64_t base = 0);
  // Atomics on the 64-bit number, in the order of bytes of the owner's processor, at `offset`, which must be aligned to
  // 8 bytes in the owner's memory. The result is the previous value; compare_and_swap has changed it if that is
  // `expected`.
  Task<Result<std::uint64_t>> compare_and_swap(RemoteRegion region, std::uint64_t offset, std::uint64_t expected,
                                               std::uint64_t desired, RemoteOptions options = {});
  Task<Result<std::uint64_t>> fetch_add(RemoteRegion region, std::uint64_t offset, std::uint64_t added,
                                        RemoteOptions options = {});

  // Writes, and then calls handler F of the peer, which finds the data written. Available to clients only. If the write
  // fails, F is not called. Over RDMA the call is sent without waiting for the write to complete. Returns the result of
  // F. The call and the write each have the timeout `options.timeout`.
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  Task<typename PendingCall<F>::Operation::Type> write_with_notify(RemoteRegion region, std::uint64_t offset,
                                                                   Bytes from, Options&& options,
                                                                   Given&&... arguments) {
    const RemoteOptions of_write{.timeout = options.timeout.value_or(RemoteOptions{}.timeout)};
    return notify<F>(begin_write(region, offset, from, of_write),
                     client_->send_request<F>(std::forward<Options>(options), std::forward<Given>(arguments)...));
  }
  // The same after all of a batch.
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  Task<typename PendingCall<F>::Operation::Type> write_with_notify(RemoteRegion region, const TransferBatch& batch,
                                                                   Options&& options, Given&&... arguments) {
    const RemoteOptions of_write{.timeout = options.timeout.value_or(RemoteOptions{}.timeout)};
    return notify<F>(begin_write(region, batch, of_write),
                     client_->send_request<F>(std::forward<Options>(options), std::forward<Given>(arguments)...));
  }

 private:
  friend class StripedMemory;
  using Access = std::shared_ptr<detail::RemoteAccess>;

  // These tasks have a copy of this object, which may be destroyed before them.
  static Task<Result<void>> run(RemoteMemory self, detail::RemoteRequest request);
  Result<Access> begin(detail::RemoteRequest& request);
  // Completes when messages that are sent from now on take effect after the write.
  Task<Result<Access>> begin_write(RemoteRegion region, std::uint64_t offset, Bytes from, RemoteOptions options);
  Task<Result<Access>> begin_write(RemoteRegion region, const TransferBatch& batch, RemoteOptions options);
  static Task<Result<Access>> begin_ordered(RemoteMemory self, detail::RemoteRequest request);
  static Task<Result<std::uint64_t>> run_atomic(RemoteMemory self, detail::RemoteRequest request);
  static Task<Result<void>> finish(Access access);

  template <auto F>
  static Task<typename PendingCall<F>::Operation::Type> notify(Task<Result<Access>> writing,
                                                               Task<Result<PendingCall<F>>> sending) {
    Result<Access> begun = co_await std::move(writing);
    if (!begun) co_return std::unexpected(std::move(begun.error()));
    // A PendingCall, because an awaited call may be sent again over another connection, which the write does not
    // precede.
    Result<PendingCall<F>> sent = co_await std::move(sending);
    if (!sent) co_return std::unexpected(std::move(sent.error()));
    auto reply = co_await std::move(*sent);
    if (!reply) co_return reply;
    Result<void> written = co_await finish(std::move(*begun));
    if (!written) co_return std::unexpected(std::move(written.error()));
    co_return reply;
  }

  Client* client_ = nullptr;
  detail::ReplySink* reply_sink_ = nullptr;
  TransferPriority priority_;
};

}  // namespace hawser
