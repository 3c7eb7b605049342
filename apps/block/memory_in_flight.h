#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/task.h"

namespace hawser::block {

// Bounds the memory of the reads and writes in progress of all clients. Replies that a client does not take keep their
// memory, and so do writes that wait for a thread. Any thread.
class MemoryInFlight {
 public:
  explicit MemoryInFlight(std::uint64_t bytes_max);

  // Memory at an address that a File accepts. Waits until it is available, in the order of the calls; no thread waits.
  // At most bytes_max. Called on the thread of `loop`. Fails with `cancelled` when `token` is stopped.
  Task<Result<Buffer>> acquire(Loop& loop, std::size_t bytes, std::stop_token token);
  // Nothing if the memory is not available, or if others wait for it.
  std::optional<Buffer> try_acquire(std::size_t bytes);
  // As try_acquire(), for files that accept every address: memory that this thread has used before, which costs less.
  std::optional<Buffer> try_acquire_pooled(std::size_t bytes);
  // As try_acquire(). owner_of() finds the memory.
  std::optional<Buffer> try_acquire_listed(std::size_t bytes);
  // Keeps the memory that try_acquire_listed() has returned and in which `address` lies. Null if there is none.
  std::shared_ptr<const void> owner_of(const std::byte* address) const;
  std::uint64_t used() const noexcept;

 private:
  struct State;
  struct Held;
  struct Waiter;
  struct Reservation;
  class Place;
  bool reserve(std::size_t bytes);
  static Buffer buffer_of(Reservation reservation, bool listed = false);

  // Buffers may live longer than this object.
  const std::shared_ptr<State> state_;
};

}  // namespace hawser::block
