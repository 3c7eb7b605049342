#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/client.h"
#include "hawser/error.h"
#include "hawser/task.h"
#include "hawser/time.h"
#include "hawser/transfer_batch.h"

// Registered memory, and access to a peer's memory without a handler; not part of hawser.h. docs/memory.md.
namespace hawser {

class Context;
class ExposedRegion;
class Server;

namespace detail {
class Grant;
class RemoteAccess;
class ReplySink;
struct RemoteRequest;
}  // namespace detail

// The operations that a peer may perform on an exposed region. Atomics need read_write.
enum class RegionAccess : std::uint8_t { read, write, read_write };

struct ExposeOptions {
  // Time from now after which peers cannot access the region any more, as if it had been revoked; `forever`: until it
  // is revoked. The clock of the loop that runs here, or the system's monotonic clock, counts it. Devices do not know
  // such a region: every access comes by frames.
  Duration lease = forever;
};

// Memory that is registered with the RDMA devices, or UCX, of a client or a server. A peer's device reads payloads
// above RdmaOptions::eager_bytes_max directly from it (CallOptions::attachment, arguments that are views of it,
// Context::set_attachment()). Replies are received directly into it (Call::into()). Over UCX this applies to payloads
// from UcxOptions::registered_bytes_min on, in memory of allocate(). Over any other transport it is ordinary memory.
//
// As for any memory, the bytes must stay valid and unchanged while a call uses them. A call that ends without its reply
// (cancelled, timed out, connection lost) may leave a transfer behind: until in_use() is false, a device may still read
// from the memory, so that the handler sees later changes, or write into it.
//
// Any thread may create, share and destroy registered buffers; one object is used by one thread at a time.
class RegisteredBuffer {
 public:
  // An empty buffer without memory.
  RegisteredBuffer() noexcept = default;

  // Allocates `bytes` bytes of zeroed memory, rounded up to whole pages and aligned to a page. It is freed when nobody
  // uses it any more. May be called before the client is connected, and before the server starts.
  // Errors: `overloaded` if there is not enough memory or the device refuses, most often because of the limit on locked
  // memory (ulimit -l); `invalid_argument` if `bytes` is 0. A missing device is no error: see registered().
  static Result<RegisteredBuffer> allocate(const Client& client, std::size_t bytes);
  static Result<RegisteredBuffer> allocate(const Server& server, std::size_t bytes);
  // Registers the caller's memory, which must stay mapped until this object is destroyed. Errors: those of allocate(),
  // and `invalid_argument` if a part of the memory is registered already. Destroying the object while it is in use ends
  // the connections that use it. UCX copies payloads that are sent from it.
  static Result<RegisteredBuffer> wrap(const Client& client, MutableBytes memory);
  static Result<RegisteredBuffer> wrap(const Server& server, MutableBytes memory);

  RegisteredBuffer(RegisteredBuffer&& other) noexcept : impl_(other.impl_) { other.impl_ = nullptr; }
  RegisteredBuffer& operator=(RegisteredBuffer&& other) noexcept;
  ~RegisteredBuffer();

  MutableBytes memory() const noexcept;
  std::size_t size() const noexcept { return memory().size(); }
  // True if a device or UCX has registered the memory. Otherwise why_not() gives the reason.
  bool registered() const noexcept;
  const std::string& why_not() const noexcept;

  // True while a transfer, or a Buffer of share(), uses the memory.
  bool in_use() const noexcept;
  // The part [offset, offset + bytes) as a Buffer, for example for Context::set_attachment(). The Buffer keeps
  // allocated memory alive. Memory given to wrap() must be kept by its owner.
  Buffer share(std::size_t offset, std::size_t bytes) const noexcept;
  Buffer share() const noexcept { return share(0, size()); }

  // Allows the peers of the client or server that the buffer was made with to access the part [offset, offset + bytes).
  // Errors: `invalid_argument` for a part that is empty or not within the memory, and for a lease that is not positive;
  // the device's own error, most often `overloaded`, if every device refuses. If only some devices refuse, see
  // ExposedRegion::left_out(). Without a device, peers access the region by frames.
  Result<ExposedRegion> expose(std::size_t offset, std::size_t bytes, RegionAccess access,
                               const ExposeOptions& options = {}) const;

 private:
  friend class ExposedRegion;
  class Impl;
  explicit RegisteredBuffer(Impl* impl) noexcept : impl_(impl) {}

  Impl* impl_ = nullptr;
};

// Handle of an exposed region: a value that calls carry as an argument, a result or a part of one. It is a capability:
// whoever has it may perform the operations that it allows, until the region is revoked. It is as confidential as the
// connections that carry it. A handle of a region that was revoked, of an earlier process, or of another peer gives
// `stale_handle`, also if the same address is exposed again.
struct RemoteRegion {
  static constexpr std::size_t places_max = 16;
  // The region on one device. Unused entries have domain 0. Devices beyond places_max are listed in
  // ExposedRegion::left_out().
  struct Place {
    std::uint64_t domain = 0;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  std::uint64_t bytes = 0;
  bool readable = false;
  bool writable = false;
  std::uint64_t owner = 0;       // Random number of the client or server that exposes the region.
  std::uint32_t slot = 0;        // The region's place in the owner's table,
  std::uint32_t generation = 0;  // and how often that place has been used.
  std::uint64_t capability = 0;  // Random.
  std::array<Place, places_max> places = {};
  friend bool operator==(const RemoteRegion&, const RemoteRegion&) = default;
};

// A part of a RegisteredBuffer that peers can access. Destroying it revokes it. It keeps allocated memory alive. For a
// buffer made by wrap(), it is revoked with the buffer. Any thread; one object is used by one thread at a time.
class ExposedRegion {
 public:
  ExposedRegion() noexcept = default;
  ExposedRegion(ExposedRegion&& other) noexcept = default;
  ExposedRegion& operator=(ExposedRegion&& other) noexcept;
  ~ExposedRegion() { revoke(); }

  const RemoteRegion& handle() const noexcept { return handle_; }
  // The devices over which peers cannot access the region, such as "mlx5_1: registering 4096 bytes: ...": devices that
  // refused it, and devices beyond RemoteRegion::places_max. Empty if all devices have it. Constant.
  const std::vector<std::string>& left_out() const noexcept { return left_out_; }
  // True if a device that had the region was removed or reset. The handles that peers have are useless on that device:
  // expose the part again and send them the new handle. False once the region is revoked.
  bool lost() const noexcept;
  // After this returns, no operation of a peer reads or changes the memory, over any transport. Waits for the copy of
  // at most one message per loop that is in progress. Over RDMA it deregisters the region's key with the devices, and
  // an access in progress or a later one ends the connection over which it comes, so notify the peers first.
  void revoke() noexcept;

 private:
  friend class RegisteredBuffer;
  RemoteRegion handle_;
  std::vector<std::string> left_out_;
  Buffer memory_;
  std::shared_ptr<detail::Grant> grant_;
};

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
//  - `unavailable`: there is no connection that can carry it, or the peer is of an older version.
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
    auto finishing = finish(std::move(*begun));
    Result<void> written = co_await std::move(finishing);
    if (!written) co_return std::unexpected(std::move(written.error()));
    co_return reply;
  }

  Client* client_ = nullptr;
  detail::ReplySink* reply_sink_ = nullptr;
  TransferPriority priority_;
};

}  // namespace hawser
