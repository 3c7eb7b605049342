#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"

// What applications can do with RDMA beyond calls; not part of hawser.h. docs/transports/rdma.md, "Registered buffers".
namespace hawser {

class Client;
class Server;

// Memory that the RDMA devices of a client or a server know. Payloads above RdmaOptions::eager_bytes_max are then read by the
// peer's device straight from it (CallOptions::attachment, arguments that are views of it, Context::set_attachment()), and
// land straight in it (Call::into()). Elsewhere, and over any other transport, it behaves as ordinary memory.
//
// The memory must stay as it is while a call uses it, as any other. But a call that ends without its reply (cancelled, timed
// out, connection lost) leaves its transfer behind: until in_use() is false a device may still read from the memory, so that
// the handler sees what is written there meanwhile, or write into it.
//
// Any thread may make, share and destroy one; one object belongs to one thread at a time.
class RegisteredBuffer {
 public:
  // Empty.
  RegisteredBuffer() noexcept = default;

  // `bytes` bytes of new memory, a multiple of the page size at a multiple of it, zeroed. It is freed when nobody uses it any more.
  // Errors: `overloaded` if the device refuses, most often for the limit on locked memory (ulimit -l); `invalid_argument` for no
  // bytes. No device is no error: see registered(). May be called before the client is connected, and before the server starts.
  static Result<RegisteredBuffer> allocate(const Client& client, std::size_t bytes);
  static Result<RegisteredBuffer> allocate(const Server& server, std::size_t bytes);
  // The caller's memory, which must stay mapped until this is destroyed. `invalid_argument` too if a part of it is registered
  // already. Destroying it while it is in use ends the connections that use it.
  static Result<RegisteredBuffer> over(const Client& client, MutableBytes memory);
  static Result<RegisteredBuffer> over(const Server& server, MutableBytes memory);

  RegisteredBuffer(RegisteredBuffer&& other) noexcept : inside_(other.inside_) { other.inside_ = nullptr; }
  RegisteredBuffer& operator=(RegisteredBuffer&& other) noexcept;
  ~RegisteredBuffer();

  MutableBytes memory() const noexcept;
  std::size_t size() const noexcept { return memory().size(); }
  // Whether a device knows it; if none does, why_not() says the reason.
  bool registered() const noexcept;
  const std::string& why_not() const noexcept;

  // Someone else holds it: a transfer, or a Buffer of share().
  bool in_use() const noexcept;
  // The part [offset, offset + bytes) as a Buffer, such as Context::set_attachment() takes. It keeps allocated memory; memory
  // given to over() must last by itself.
  Buffer share(std::size_t offset, std::size_t bytes) const noexcept;
  Buffer share() const noexcept { return share(0, size()); }

 private:
  class Inside;
  explicit RegisteredBuffer(Inside* inside) noexcept : inside_(inside) {}

  Inside* inside_ = nullptr;
};

// The memory of one RDMA device that a client or server uses. Those with the same RdmaOptions in a process share it.
struct RdmaCounters {
  std::string device;
  std::size_t registered_bytes = 0;  // For connections and payloads, at most RdmaOptions::memory_bytes_max.
  std::size_t used_bytes = 0;        // Of these, in use.
  std::size_t used_bytes_max = 0;    // The most that was in use at once.
  std::uint64_t refused = 0;         // Times that memory_bytes_max was met: connections refused, payloads copied.
  std::size_t connections = 0;       // Queue pairs.
  std::size_t connection_bytes = 0;  // Posted by each connection while it is idle.
  std::size_t buffer_bytes = 0;      // Of all RegisteredBuffers.
  std::uint64_t buffer_sends = 0;  // Payloads that were offered to the peer's device straight from a RegisteredBuffer.
  std::uint64_t buffer_receives = 0;  // Payloads that were read straight into one.
};

// One for each device in use; empty without any. Any thread, as long as the client or server exists.
std::vector<RdmaCounters> rdma_counters(const Client& client);
std::vector<RdmaCounters> rdma_counters(const Server& server);

}  // namespace hawser
