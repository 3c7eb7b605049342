#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "hawser/error.h"
#include "hawser/time.h"
#include "hawser/transfer_batch.h"

namespace hawser::transport {

// One read or write of the peer's memory, at one address until it has ended or been abandoned.
class RemoteOperation {
 public:
  enum class Kind : std::uint8_t { read, write };
  Kind kind = Kind::read;
  // Local memory, registered by the application, and its places behind `address`. The runs last until the operation
  // has ended or has been abandoned.
  std::span<const TransferBatch::Run> runs = {};
  TransferPriority priority = TransferPriority::interactive;
  Time deadline = Time::max();  // Orders bulk operations.
  std::uint64_t domain = 0;     // Domain of the peer's device, as in the peer's ExposedPlace.
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  // The transport keeps a copy until no device accesses the local memory any more, also after an error and after
  // abandon(). May be null.
  std::shared_ptr<const void> local_use = {};

  // The operation is ordered before all messages that are committed from now on: the peer sees its effect first. Called
  // before on_done().
  virtual void on_posted() = 0;
  // The last call. Must not destroy the connection. The text of an error has the number of confirmed bytes, if there
  // are any.
  virtual void on_done(const std::optional<Error>& error) = 0;

 protected:
  ~RemoteOperation() = default;
};

// One-sided access through a connection to memory that its peer has exposed. Belongs to the connection, on its loop.
class OneSidedMemory {
 public:
  // The domain of the peer's device; 0 if the peer exposes nothing.
  virtual std::uint64_t domain() const noexcept = 0;
  // On an error, the operation has not begun and gets no callback. Callbacks may be called within this call.
  virtual Result<void> start(RemoteOperation& operation) = 0;
  // Abandons the operation: it gets no more callbacks, and no further work of it begins. Work that a device has begun
  // continues; the local memory is kept until it ends.
  virtual void abandon(RemoteOperation& operation) noexcept = 0;

 protected:
  ~OneSidedMemory() = default;
};

}  // namespace hawser::transport
