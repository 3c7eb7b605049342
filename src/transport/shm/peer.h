#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "base/descriptor.h"
#include "hawser/bytes.h"
#include "hawser/error.h"
#include "transport/shm/meeting.h"
#include "transport/shm/memory/doorbell.h"
#include "transport/shm/memory/layout.h"

namespace hawser::transport::shm {

// A range of the peer's memory, at the peer's address.
struct PeerBuffer {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

// The process at the other end, as a kernel object, because its number may be given to another process after its death.
// Any thread.
class PeerProcess {
 public:
  // The kernel has reported that the process holds the other end of `bell`.
  PeerProcess(const PeerIdentity& identity, const Doorbell& bell) noexcept;

  pid_t pid() const noexcept { return pid_; }
  bool lives() const noexcept;
  // True if this process may read the other's memory now. The check discloses and reads nothing.
  bool may_be_read() const noexcept;
  // Reads `from` into `to`, which has the same size. May wait forever if the memory is backed by a file system that
  // does not answer, so it must not run on a loop. An error of scope `call` means that the peer does not have this
  // memory. An error of scope `transport` means that the peer's memory may not be read, or not any more.
  Result<void> read(const PeerBuffer& from, std::byte* to) const;

 private:
  pid_t pid_;
  Descriptor descriptor_;
};

// Puts a side to sleep.
class Sleeper {
 public:
  explicit Sleeper(SideState& own) noexcept : own_(own) {}

  // From now on the peer rings for the events in `wants`. False, and the peer does not ring, if there is work already.
  template <class F>
  bool arm(std::uint32_t wants, F has_work) noexcept {
    own_.asleep.store(wants, std::memory_order_relaxed);
    // See PeerWaker::wake().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!has_work()) return true;
    disarm();
    return false;
  }
  void disarm() noexcept { own_.asleep.store(0, std::memory_order_relaxed); }

 private:
  SideState& own_;
};

// Wakes a peer that sleeps.
class PeerWaker {
 public:
  PeerWaker(SideState& side, const Doorbell& bell) noexcept : side_(side), bell_(bell) {}

  // Called after publishing something for which a peer may sleep.
  void wake(std::uint32_t wants) const noexcept {
    // Orders the published data before the read of the flag. The sleeper has a fence between setting the flag and its
    // last check. One of the two sees the other's write.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if ((side_.asleep.load(std::memory_order_relaxed) & wants) == 0) [[likely]]
      return;
    if (side_.asleep.exchange(0, std::memory_order_seq_cst) != 0) bell_.ring();
  }
  // A hint: a peer that reads no more requests parts.
  bool reads() const noexcept { return side_.reads.load(std::memory_order_relaxed) == 1; }

 private:
  SideState& side_;
  const Doorbell& bell_;
};

}  // namespace hawser::transport::shm
