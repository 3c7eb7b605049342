#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "base/descriptor.h"
#include "hawser/bytes.h"
#include "hawser/error.h"
#include "transport/shm/doorbell.h"
#include "transport/shm/layout.h"

namespace hawser::transport::shm {

// A piece of the peer's memory, by the peer's address.
struct RemotePiece {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

// The process at the other end, as its kernel object: its number may be given to another process when it has died.
class PeerProcess {
 public:
  explicit PeerProcess(pid_t pid) noexcept;

  pid_t pid() const noexcept { return pid_; }
  bool lives() const noexcept;
  // Reads the pieces one after another into `to`, which they fill. An error of scope `call` says that the peer does not
  // have such memory.
  Result<void> read(std::span<const RemotePiece> pieces, MutableBytes to) const;

 private:
  pid_t pid_;
  Descriptor descriptor_;
};

// What wakes a peer that sleeps.
class PeerWaker {
 public:
  PeerWaker(SideState& side, const Doorbell& bell) noexcept : side_(side), bell_(bell) {}

  // After something was published that a peer may sleep for.
  void wake(std::uint32_t wants) const noexcept {
    // Between what was published and the look at the flag; the sleeper has the same between flag and last look. One of
    // the two sees what the other did.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if ((side_.asleep.load(std::memory_order_relaxed) & wants) == 0) [[likely]]
      return;
    if (side_.asleep.exchange(0, std::memory_order_seq_cst) != 0) bell_.ring();
  }
  bool reads() const noexcept { return side_.reads.load(std::memory_order_relaxed) == 1; }

 private:
  SideState& side_;
  const Doorbell& bell_;
};

}  // namespace hawser::transport::shm
