#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "hawser/registered_buffer.h"
#include "hawser/transfer_batch.h"
#include "references.h"

namespace hawser {
class Server;
}

namespace hawser::python {

namespace nb = nanobind;

class ClientCore;

// Memory of a Python object that the peers of a server may access until it is revoked. Used with the GIL: no loop waits
// for it, so that revoking may wait for a copy of a loop.
class ExposedMemory {
 public:
  // Throws an exception of Python.
  ExposedMemory(const Server& server, nb::handle memory, RegionAccess access, Duration lease);
  ExposedMemory(const ExposedMemory&) = delete;
  ExposedMemory& operator=(const ExposedMemory&) = delete;
  ~ExposedMemory() { revoke(); }

  const RemoteRegion& handle() const noexcept { return handle_; }
  void revoke() noexcept;

 private:
  struct Parts {
    BorrowedMemory memory;
    RegisteredBuffer buffer;
    ExposedRegion region;
  };
  const std::uint64_t generation_;
  std::unique_ptr<Parts> parts_;  // Null after revoke().
  RemoteRegion handle_;
};

// Blocks of a Python object's memory, each with its place in a region, that are read or written together. Used with the
// GIL, except by an access that is in progress.
class MemoryBatch {
 public:
  // `local`, `remote` and `bytes` are sequences of numbers of the same length, or memory of such numbers with 8 bytes
  // each; `bytes` may be one number. Throws an exception of Python.
  MemoryBatch(nb::handle memory, nb::handle local, nb::handle remote, nb::handle bytes);

  // Moves the blocks to other places of a region.
  void move(nb::handle remote);

  const TransferBatch& batch() const noexcept { return batch_; }
  MutableBytes memory() const noexcept { return memory_.mutable_bytes(); }
  bool writable() const noexcept { return writable_; }
  // An access is in progress, or has ended.
  void begin() noexcept { ++used_; }
  void end() noexcept { --used_; }

 private:
  BorrowedMemory memory_;
  TransferBatch batch_;
  bool writable_ = false;
  std::size_t used_ = 0;  // Accesses in progress.
};

// Memory of a Python object that is registered with the devices of a client until close().
class RegisteredMemory {
 public:
  RegisteredMemory(std::shared_ptr<ClientCore> client, BorrowedMemory memory, RegisteredBuffer buffer);
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  ~RegisteredMemory() { close(); }

  bool registered() const noexcept { return buffer_ != nullptr && buffer_->registered(); }
  // The memory may move and be freed afterwards.
  void close() noexcept;

 private:
  const std::uint64_t generation_;
  std::shared_ptr<ClientCore> client_;  // Its devices have the memory.
  BorrowedMemory memory_;
  std::unique_ptr<RegisteredBuffer> buffer_;  // Null after close().
};

void bind_memory(nb::module_& module);

}  // namespace hawser::python
