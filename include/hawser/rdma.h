#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/client.h"
#include "hawser/error.h"
#include "hawser/task.h"
#include "hawser/time.h"

// RDMA for applications beyond calls; not part of hawser.h. docs/transports/rdma.md, "Registered buffers" and
// "One-sided operations".
namespace hawser {

class Context;
class ExposedRegion;
class Server;

namespace detail {
class RemoteAccess;
class ReplySink;
struct Grant;
}  // namespace detail

// The operations that a peer may perform on an exposed region.
enum class RegionAccess : std::uint8_t { read, write, read_write };

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

  // Allows peers to read or write the part [offset, offset + bytes) with one-sided operations. Errors:
  // `invalid_argument` for a part that is empty or not within the memory; the device's own error, most often
  // `overloaded`, if every device refuses. If only some devices refuse, see ExposedRegion::left_out(). Without a device
  // it succeeds, and the operations of peers fail.
  Result<ExposedRegion> expose(std::size_t offset, std::size_t bytes, RegionAccess access) const;

 private:
  friend class ExposedRegion;
  class Impl;
  explicit RegisteredBuffer(Impl* impl) noexcept : impl_(impl) {}

  Impl* impl_ = nullptr;
};

// Handle of an exposed region: a value that calls carry as an argument, a result or a part of one. It is a capability:
// whoever has it may perform the operations that it allows, until the region is revoked. It is as confidential as the
// connections that carry it.
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
  std::array<Place, places_max> places = {};
  friend bool operator==(const RemoteRegion&, const RemoteRegion&) = default;
};

// A part of a RegisteredBuffer that peers can access. Destroying it revokes it: from then on the devices refuse every
// access with its handle. An access in progress or a later one ends the connection over which it comes, so notify the
// peers first. It keeps allocated memory alive. For a buffer made by wrap(), it is revoked with the buffer. Any thread;
// one object is used by one thread at a time.
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
  void revoke() noexcept;

 private:
  friend class RegisteredBuffer;
  RemoteRegion handle_;
  std::vector<std::string> left_out_;
  Buffer memory_;
  std::shared_ptr<detail::Grant> grant_;
};

struct RemoteOptions {
  // Time after which an access fails with deadline_exceeded. A device may still execute the access afterwards.
  Duration timeout = std::chrono::seconds(30);
};

// Reads and writes a peer's exposed memory without a handler: a client accesses its server's memory, or a handler
// accesses its caller's memory. Works over RDMA only; over other transports every operation fails with `unavailable`.
// Used on the connection's loop. Must not outlive the client or context.
// Operations of one connection begin in order. A write is complete before later writes and calls take effect, but a
// read may see the data of a later write. RdmaOptions::one_sided_max limits the operations in progress.
//
// The local memory must lie within a RegisteredBuffer and stay valid and unchanged until the operation has ended. After
// an operation was abandoned (its task destroyed, or timed out), in_use() of the buffer shows whether a device still
// uses the memory.
//
// Errors of all operations:
//  - `invalid_argument` before anything is sent: the access is outside of the region or the buffer, the region does not
//    allow it, or the region belongs to another peer.
//  - `invalid_argument` from the peer's device, for example for a revoked region. The connection ends then.
//  - `overloaded`: RdmaOptions::one_sided_max is reached.
//  - `unavailable`: the connection does not use RDMA.
//  - `not_sent`: the connection ended before the operation began.
//  - `outcome_unknown` (writes) or `unavailable` (reads): the connection ended later.
//  - `deadline_exceeded`: RemoteOptions::timeout has passed.
class RemoteMemory {
 public:
  explicit RemoteMemory(Client& client) noexcept : client_(&client) {}
  explicit RemoteMemory(const Context& context) noexcept;

  // Reads into.size() bytes at `offset` of the region into `into`.
  Task<Result<void>> read(RemoteRegion region, std::uint64_t offset, MutableBytes into, RemoteOptions options = {});
  // Writes `from` at `offset` of the region. Completes when the data is in the peer's memory.
  Task<Result<void>> write(RemoteRegion region, std::uint64_t offset, Bytes from, RemoteOptions options = {});

  // Writes, and then calls handler F of the peer, which finds the data written. The call is sent without waiting for
  // the write to complete. Available to clients only. If the write fails, F is not called. Returns the result of F. The
  // call and the write each have the timeout `options.timeout`.
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  Task<typename PendingCall<F>::Operation::Type> write_with_notify(RemoteRegion region, std::uint64_t offset,
                                                                   Bytes from, Options&& options,
                                                                   Given&&... arguments) {
    const RemoteOptions of_write{.timeout = options.timeout.value_or(RemoteOptions{}.timeout)};
    return notify<F>(begin_write(region, offset, from, of_write),
                     client_->send_request<F>(std::forward<Options>(options), std::forward<Given>(arguments)...));
  }

 private:
  using Access = std::shared_ptr<detail::RemoteAccess>;

  Task<Result<void>> run(bool writes, RemoteRegion region, std::uint64_t offset, MutableBytes memory,
                         RemoteOptions options);
  Result<Access> begin(bool writes, const RemoteRegion& region, std::uint64_t offset, MutableBytes memory,
                       const RemoteOptions& options);
  // Completes when messages that are sent from now on are ordered behind the write.
  Task<Result<Access>> begin_write(RemoteRegion region, std::uint64_t offset, Bytes from, RemoteOptions options);
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
};

// Memory use of one RDMA device of a client or server. Clients and servers of a process with equal RdmaOptions share
// it. If RegisteredBuffers are registered with UCX, UCX counts as a device of the name "ucx" with the figures of these
// buffers only.
struct RdmaCounters {
  std::string device;
  std::size_t registered_bytes = 0;  // For connections and payloads. At most RdmaOptions::memory_bytes_max.
  std::size_t used_bytes = 0;        // Part of registered_bytes that is in use.
  std::size_t used_bytes_max = 0;    // Largest value of used_bytes so far.
  // Number of times that memory_bytes_max was reached: connections refused, payloads copied.
  std::uint64_t refused = 0;
  std::size_t connections = 0;        // Queue pairs.
  std::size_t connection_bytes = 0;   // Posted by each idle connection.
  std::size_t buffer_bytes = 0;       // Size of all RegisteredBuffers.
  std::uint64_t buffer_sends = 0;     // Payloads that the peer could read directly from a RegisteredBuffer.
  std::uint64_t buffer_receives = 0;  // Payloads that were read directly into a RegisteredBuffer.
};

// One element per device in use; empty if there is none. Any thread, while the client or server exists.
std::vector<RdmaCounters> rdma_counters(const Client& client);
std::vector<RdmaCounters> rdma_counters(const Server& server);

}  // namespace hawser
