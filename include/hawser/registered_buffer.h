#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/task.h"
#include "hawser/time.h"

// Registered memory, and the parts of it that peers may access; not part of hawser.h. docs/memory.md.
namespace hawser {

class BufferAllocation;
class Client;
class ExposedRegion;
class Server;

namespace detail {
class Grant;
}  // namespace detail

// The operations that a peer may perform on an exposed region. Atomics need read_write.
enum class RegionAccess : std::uint8_t { read, write, read_write };

struct ExposeOptions {
  // Time from now after which peers cannot access the region any more, as if it had been revoked; `forever`: until it
  // is revoked. The clock of the loop that runs here, or the system's monotonic clock, counts it. Devices do not know
  // such a region: every access comes by frames.
  Duration lease = forever;
};

// How RegisteredBuffer::allocate_in_background() allocates.
struct AllocationOptions {
  // Threads that allocate pages, on the processors of the process's first thread. 0: as many as these, at most 16.
  // Threads that cannot be started are left out.
  unsigned threads = 0;
  // Asks the kernel for huge pages, which need fewer entries in a device's page table. For 2 MiB and more.
  bool huge_pages = true;
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
  // memory (ulimit -l); `invalid_argument` if `bytes` is 0. A missing device is not an error: see registered().
  static Result<RegisteredBuffer> allocate(const Client& client, std::size_t bytes);
  static Result<RegisteredBuffer> allocate(const Server& server, std::size_t bytes);
  // The same for large memory, by threads in the background: several allocate the pages, and one registers them. The
  // client or server may be destroyed meanwhile. BufferAllocation reports errors. Throws std::system_error if no thread
  // can be started.
  static BufferAllocation allocate_in_background(const Client& client, std::size_t bytes,
                                                 const AllocationOptions& options = {});
  static BufferAllocation allocate_in_background(const Server& server, std::size_t bytes,
                                                 const AllocationOptions& options = {});
  // Registers the caller's memory, which must stay mapped until this object is destroyed. Errors: those of allocate(),
  // and `invalid_argument` if a part of the memory is registered already. Destroying the object while it is in use ends
  // the connections that use it. UCX copies payloads that are sent from it.
  static Result<RegisteredBuffer> wrap(const Client& client, MutableBytes memory);
  static Result<RegisteredBuffer> wrap(const Server& server, MutableBytes memory);

  // Registers the part [offset, offset + bytes) of the memory behind a dma-buf descriptor, such as that of a GPU, with
  // RDMA devices. The caller may close the descriptor afterwards. The processor never accesses this memory.
  // RemoteMemory and TransferBatch name it by addresses(); calls cannot carry it. Accesses that need the processor fail
  // with `unavailable`: frames over other transports, atomics, checksums. Not tested on hardware. Any thread.
  // Errors: `invalid_argument` for a descriptor that is not open and for a part that is empty or not within its memory;
  // `unavailable` if no enabled transport, or no device, can use such memory: the text names each with its reason;
  // `overloaded` if a device refuses the memory, or the process has no more descriptors.
  static Result<RegisteredBuffer> dmabuf(const Client& client, int descriptor, std::uint64_t offset, std::size_t bytes);
  static Result<RegisteredBuffer> dmabuf(const Server& server, int descriptor, std::uint64_t offset, std::size_t bytes);

  RegisteredBuffer(RegisteredBuffer&& other) noexcept : impl_(other.impl_) { other.impl_ = nullptr; }
  RegisteredBuffer& operator=(RegisteredBuffer&& other) noexcept;
  ~RegisteredBuffer();

  // The memory. Empty for dmabuf(), because the processor cannot access it.
  MutableBytes memory() const noexcept;
  // Names the memory in reads, writes and batches of RemoteMemory. Equals memory(), except for dmabuf(): there an
  // access by the processor is a fault (SIGSEGV). Valid as long as this object.
  MutableBytes addresses() const noexcept;
  std::size_t size() const noexcept { return addresses().size(); }
  // True if a device or UCX has registered the memory. Otherwise why_not() gives the reason.
  bool registered() const noexcept;
  const std::string& why_not() const noexcept;

  // True while a transfer, or a Buffer of share(), uses the memory.
  bool in_use() const noexcept;
  // The part [offset, offset + bytes) as a Buffer, for example for Context::set_attachment(). The Buffer keeps
  // allocated memory alive. Memory given to wrap() must be kept by its owner. Empty for dmabuf().
  Buffer share(std::size_t offset, std::size_t bytes) const noexcept;
  Buffer share() const noexcept { return share(0, size()); }

  // Allows the peers of the client or server that the buffer was made with to access the part [offset, offset + bytes).
  // Errors: `invalid_argument` for a part that is empty or not within the memory, for a lease that is not positive, and
  // for a lease of memory of dmabuf(); the device's own error, most often `overloaded`, if every device refuses. If
  // only some devices refuse, see ExposedRegion::left_out(). Without a device, peers access the region by frames.
  Result<ExposedRegion> expose(std::size_t offset, std::size_t bytes, RegionAccess access,
                               const ExposeOptions& options = {}) const;

 private:
  friend class BufferAllocation;
  friend class ExposedRegion;
  class Impl;
  explicit RegisteredBuffer(Impl* impl) noexcept : impl_(impl) {}

  Impl* impl_ = nullptr;
};

// A buffer that threads in the background allocate and register. Destroying it gives the buffer up: it waits for the
// part of 64 MiB, or for the registration, that is in progress. One object is used by one thread at a time, except for
// done() and ready_bytes().
class BufferAllocation {
 public:
  BufferAllocation() noexcept;  // Allocates nothing.
  BufferAllocation(BufferAllocation&& other) noexcept;
  BufferAllocation& operator=(BufferAllocation&& other) noexcept;
  ~BufferAllocation();

  // True if wait() returns at once. Any thread.
  bool done() const noexcept;
  // Bytes of which the pages have been allocated, in steps of 64 MiB. The registration comes after the last one. Any
  // thread.
  std::size_t ready_bytes() const noexcept;
  // Blocks the calling thread until the buffer is ready, and returns it. The second call fails with `invalid_argument`.
  // Errors: those of RegisteredBuffer::allocate().
  Result<RegisteredBuffer> wait();
  // The same for coroutines: a thread of the loop's offload pool waits. This object must outlive the task. Errors:
  // those of wait() and of Loop::offload().
  Task<Result<RegisteredBuffer>> result();

 private:
  friend class RegisteredBuffer;
  struct State;
  explicit BufferAllocation(std::shared_ptr<State> state) noexcept;
  std::shared_ptr<State> state_;
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

}  // namespace hawser
