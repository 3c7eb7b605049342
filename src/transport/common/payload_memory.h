#pragma once

#include <cstddef>

namespace hawser::transport {

// Implemented by a Connection that can give out the memory in which a payload reaches the peer, beside that interface.
// A layer above that produces a payload, such as by encryption, writes it there, so that it is not copied. Loop's
// thread only.
class PayloadMemory {
 public:
  // Called between Connection::reserve() and commit(). Returns memory for the whole payload of that message, or null if
  // there is none now. Throws nothing. The caller writes `bytes` bytes and commits the message with this memory as its
  // only piece and without an owner. If it commits another payload or none, the memory is used again. The peer may
  // read the memory, and write to it, at any time. `bytes` is more than 0.
  virtual std::byte* reserve_payload(std::size_t bytes) noexcept = 0;

 protected:
  ~PayloadMemory() = default;
};

}  // namespace hawser::transport
