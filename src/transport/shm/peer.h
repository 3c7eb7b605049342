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

// A piece of the peer's memory, by the peer's address.
struct RemoteBuffer {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

// The process at the other end, as its kernel object: its number may be given to another process when it has died. Any
// thread.
class PeerProcess {
 public:
  // Of whom the kernel has said that it holds the other end of `bell`.
  PeerProcess(const PeerIdentity& identity, const Doorbell& bell) noexcept;

  pid_t pid() const noexcept { return pid_; }
  bool lives() const noexcept;
  // Whether this process may read the other's memory now. Discloses nothing and reads nothing.
  bool may_be_read() const noexcept;
  // Reads `from` into `to`, which has the same size. May wait for ever if the memory is backed by a file system that
  // does not answer: not on a loop. An error of scope `call` says that the peer does not have such memory, one of scope
  // `transport` that it may not be read (any more).
  Result<void> read(const RemoteBuffer& from, std::byte* to) const;

 private:
  pid_t pid_;
  Descriptor descriptor_;
};

// How a side falls asleep.
class Sleeper {
 public:
  explicit Sleeper(SideState& own) noexcept : own_(own) {}

  // From now on the peer rings for what `wants` names; false, and it does not, if there is work already.
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
