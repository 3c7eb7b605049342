#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "transport/shm/helpers.h"
#include "transport/shm/memory/layout.h"
#include "transport/shm/peer.h"

namespace hawser {
class Loop;
}

namespace hawser::transport::shm {

// One payload that a helper thread reads from the peer's memory. It belongs to a loop and to that thread. The thread
// uses only what this object keeps alive, however long it takes.
class DirectRead : public std::enable_shared_from_this<DirectRead> {
 public:
  struct Source {
    std::array<PeerBuffer, read_pieces_max> pieces;
    std::size_t count = 0;
  };

  // Reads into `own`, to which nobody else writes meanwhile. If `own` is empty, reads into `given`: the thread reads
  // into memory of its own first, so that `given` may be revoked at any time.
  DirectRead(Loop& loop, std::shared_ptr<const PeerProcess> peer, const Source& source, Buffer own, std::byte* given);

  // Calls `done` on the loop when the read has ended, unless it is abandoned before. False if no thread is free; then
  // nothing happens.
  bool start(Helpers& helpers, std::function<void()> done);
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  // Valid when the read has ended.
  const Result<void>& result() const noexcept { return result_; }
  // Increases while the read makes progress.
  std::size_t progress() const noexcept { return progress_.load(std::memory_order_relaxed); }
  // From now on the given memory is not accessed.
  void withdraw() noexcept;
  // Like withdraw(), and `done` is not called any more. The loop must not end before this is called, even if the read
  // has ended.
  void abandon() noexcept;

 private:
  static constexpr std::size_t step_bytes = 256 * 1024;  // Size of one read; fits into a cache.

  void run() noexcept;
  Result<void> read_all();

  const std::shared_ptr<const PeerProcess> peer_;
  const Source source_;
  const Buffer own_;
  std::atomic<std::size_t> progress_{0};
  std::atomic<bool> ended_{false};
  std::atomic<bool> abandoned_{false};  // Only ends the work early.
  Result<void> result_;

  std::mutex mutex_;  // Guards the members below. It is held while bytes are copied to the given memory.
  std::byte* given_;
  Loop* loop_;
  std::function<void()> done_;  // Used by the loop's thread only.
};

}  // namespace hawser::transport::shm
