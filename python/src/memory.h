#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "hawser/registered_buffer.h"
#include "references.h"

namespace hawser {
class Server;
}

namespace hawser::python {

namespace nb = nanobind;

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

void bind_memory(nb::module_& module);

}  // namespace hawser::python
