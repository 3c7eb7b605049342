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

// What applications can do with RDMA beyond calls; not part of hawser.h. docs/transports/rdma.md, "Registered buffers"
// and "One-sided operations".
namespace hawser {

class Context;
class ExposedRegion;
class Server;

namespace detail {
class RemoteAccess;
class ReplySink;
struct Grant;
}  // namespace detail

// What a peer may do with an exposed region.
enum class RegionAccess : std::uint8_t { read, write, read_write };

// Memory that the RDMA devices, or UCX, of a client or a server know. Payloads above RdmaOptions::eager_bytes_max are
// then read by the peer's device straight from it (CallOptions::attachment, arguments that are views of it,
// Context::set_attachment()), and land straight in it (Call::into()); over UCX those from
// UcxOptions::registered_bytes_min, in memory of allocate(). Elsewhere, and over any other transport, it behaves as
// ordinary memory.
//
// The memory must stay as it is while a call uses it, as any other. But a call that ends without its reply (cancelled,
// timed out, connection lost) leaves its transfer behind: until in_use() is false a device may still read from the
// memory, so that the handler sees what is written there meanwhile, or write into it.
//
// Any thread may make, share and destroy one; one object belongs to one thread at a time.
class RegisteredBuffer {
 public:
  // Empty.
  RegisteredBuffer() noexcept = default;

  // `bytes` bytes of new memory, a multiple of the page size at a multiple of it, zeroed. It is freed when nobody uses
  // it any more. Errors: `overloaded` if there is not so much memory, or the device refuses, most often for the limit
  // on locked memory (ulimit -l); `invalid_argument` for no bytes. No device is no error: see registered(). May be
  // called before the client is connected, and before the server starts.
  static Result<RegisteredBuffer> allocate(const Client& client, std::size_t bytes);
  static Result<RegisteredBuffer> allocate(const Server& server, std::size_t bytes);
  // The caller's memory, which must stay mapped until this is destroyed. `invalid_argument` too if a part of it is
  // registered already. Destroying it while it is in use ends the connections that use it. UCX copies what is sent from
  // it.
  static Result<RegisteredBuffer> wrap(const Client& client, MutableBytes memory);
  static Result<RegisteredBuffer> wrap(const Server& server, MutableBytes memory);

  RegisteredBuffer(RegisteredBuffer&& other) noexcept : impl_(other.impl_) { other.impl_ = nullptr; }
  RegisteredBuffer& operator=(RegisteredBuffer&& other) noexcept;
  ~RegisteredBuffer();

  MutableBytes memory() const noexcept;
  std::size_t size() const noexcept { return memory().size(); }
  // Whether a device or UCX knows it; if none does, why_not() says the reason.
  bool registered() const noexcept;
  const std::string& why_not() const noexcept;

  // Someone else holds it: a transfer, or a Buffer of share().
  bool in_use() const noexcept;
  // The part [offset, offset + bytes) as a Buffer, such as Context::set_attachment() takes. It keeps allocated memory;
  // memory given to wrap() must last by itself.
  Buffer share(std::size_t offset, std::size_t bytes) const noexcept;
  Buffer share() const noexcept { return share(0, size()); }

  // Lets peers read or write the part [offset, offset + bytes) by themselves. Errors: `invalid_argument` for a part
  // that is empty or not within the memory; the device's own, most often `overloaded`, if every device refuses. If only
  // some do, see ExposedRegion::left_out(). Without a device it succeeds, and peers are told when they try.
  Result<ExposedRegion> expose(std::size_t offset, std::size_t bytes, RegionAccess access) const;

 private:
  friend class ExposedRegion;
  class Impl;
  explicit RegisteredBuffer(Impl* impl) noexcept : impl_(impl) {}

  Impl* impl_ = nullptr;
};

// What a peer needs to reach an exposed region: a value that travels in calls, as an argument, a result or a part of
// one. Whoever has it may do what it allows, until it is revoked: it is a capability, and no less readable than the
// connections it travels over.
struct RemoteRegion {
  static constexpr std::size_t places_max = 16;
  // One for each device that knows the region; of domain 0 where there are fewer. What is more is in
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

// A part of a RegisteredBuffer that peers can reach. Destroying it revokes it: from then on the devices refuse every
// access with its handle, and an access under way or a later one ends the connection that it comes over. So tell the
// peers first. It keeps allocated memory, and is revoked with a buffer made by wrap(). Any thread; one object belongs
// to one thread at a time.
class ExposedRegion {
 public:
  ExposedRegion() noexcept = default;
  ExposedRegion(ExposedRegion&& other) noexcept = default;
  ExposedRegion& operator=(ExposedRegion&& other) noexcept;
  ~ExposedRegion() { revoke(); }

  const RemoteRegion& handle() const noexcept { return handle_; }
  // The devices over which peers can't reach the region, such as "mlx5_1: registering 4096 bytes: ...": those that
  // refused it, and those beyond RemoteRegion::places_max. Empty if all have it. Constant.
  const std::vector<std::string>& left_out() const noexcept { return left_out_; }
  // A device that had the region was removed or reset: what peers hold leads to nothing there, now or later. Expose the
  // part anew and give the peers that handle. False once it is revoked.
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
  // Of the access. When it has passed, the access is given up with deadline_exceeded, though a device may still be at
  // it.
  Duration timeout = std::chrono::seconds(30);
};

// Reads and writes a peer's exposed memory without a handler: a client its server's, or a handler its caller's. Over
// RDMA only: elsewhere every operation is `unavailable`. Used on the connection's loop; must not outlive the client or
// context. Operations of one connection are begun in order, and a write is there before what is written or called
// later; but a read may see what a later write brings. RdmaOptions::one_sided_max bounds how many are under way.
//
// The local memory must lie within a RegisteredBuffer, which has to stay as it is until the operation has ended, and
// whose in_use() tells when a device has done with an operation that was given up (its task destroyed, or timed out).
//
// Errors, of all: `invalid_argument` for what lies outside of the region or the buffer, is not allowed by the region,
// or is another peer's, all of it before anything is sent, and for what the peer's device refused, such as a revoked
// region, which ends the connection; `overloaded` past the bound; `unavailable` without RDMA; `not_sent` if the
// connection ended before the operation had begun; `outcome_unknown` (writes) or `unavailable` (reads) if it ended
// later; `deadline_exceeded`.
class RemoteMemory {
 public:
  explicit RemoteMemory(Client& client) noexcept : client_(&client) {}
  explicit RemoteMemory(const Context& context) noexcept;

  // The bytes at `offset` of the region into `into`.
  Task<Result<void>> read(RemoteRegion region, std::uint64_t offset, MutableBytes into, RemoteOptions options = {});
  // Ends when the peer's memory has it.
  Task<Result<void>> write(RemoteRegion region, std::uint64_t offset, Bytes from, RemoteOptions options = {});

  // Writes, and behind it calls handler F of the peer, who finds the memory written, without waiting for one before the
  // other. Of a client only. If the write fails, F is not called. The result is F's; the call and the write each have
  // `options.timeout`.
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
  // Ends when what is sent from now on comes behind the write.
  Task<Result<Access>> begin_write(RemoteRegion region, std::uint64_t offset, Bytes from, RemoteOptions options);
  static Task<Result<void>> finish(Access access);

  template <auto F>
  static Task<typename PendingCall<F>::Operation::Type> notify(Task<Result<Access>> writing,
                                                               Task<Result<PendingCall<F>>> sending) {
    Result<Access> begun = co_await std::move(writing);
    if (!begun) co_return std::unexpected(std::move(begun.error()));
    // Never sent over another connection, as an awaited call may be: the write would not be there.
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

// The memory of one RDMA device that a client or server uses. Those with the same RdmaOptions in a process share it.
// UCX, once there are RegisteredBuffers, counts as a device of the name "ucx", of which only what concerns those is
// known.
struct RdmaCounters {
  std::string device;
  std::size_t registered_bytes = 0;   // For connections and payloads, at most RdmaOptions::memory_bytes_max.
  std::size_t used_bytes = 0;         // Of these, in use.
  std::size_t used_bytes_max = 0;     // The most that was in use at once.
  std::uint64_t refused = 0;          // Times that memory_bytes_max was met: connections refused, payloads copied.
  std::size_t connections = 0;        // Queue pairs.
  std::size_t connection_bytes = 0;   // Posted by each connection while it is idle.
  std::size_t buffer_bytes = 0;       // Of all RegisteredBuffers.
  std::uint64_t buffer_sends = 0;     // Payloads that were offered to the peer straight from a RegisteredBuffer.
  std::uint64_t buffer_receives = 0;  // Payloads that were read straight into one.
};

// One for each device in use; empty without any. Any thread, as long as the client or server exists.
std::vector<RdmaCounters> rdma_counters(const Client& client);
std::vector<RdmaCounters> rdma_counters(const Server& server);

}  // namespace hawser
