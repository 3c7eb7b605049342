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

// One payload on its way from the peer's memory, read by a helper thread. Belongs to a loop and to that thread; the
// thread uses nothing but what this keeps, however long it takes.
class DirectRead : public std::enable_shared_from_this<DirectRead> {
 public:
  struct Source {
    std::array<RemoteBuffer, read_pieces_max> pieces;
    std::size_t count = 0;
  };

  // Into `own`, which nobody else writes meanwhile, or, if that is empty, into memory that is given: the thread reads
  // into memory of its own first, so that the memory may be taken back at any time.
  DirectRead(Loop& loop, std::shared_ptr<const PeerProcess> peer, const Source& source, Buffer own, std::byte* given);

  // Calls `done` on the loop when the read has ended, unless it is abandoned first. False if there is no thread: then
  // nothing happens.
  bool start(Helpers& helpers, std::function<void()> done);
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  // Once it has ended.
  const Result<void>& result() const noexcept { return result_; }
  // Grows as long as the read gets ahead.
  std::size_t progress() const noexcept { return progress_.load(std::memory_order_relaxed); }
  // From now on the given memory is not touched.
  void withdraw() noexcept;
  // withdraw(); and `done` is not called any more. The loop may end afterwards, and not before, even if the read has
  // ended.
  void abandon() noexcept;

 private:
  static constexpr std::size_t step_bytes = 256 * 1024;  // Read at once; fits in a cache.

  void run() noexcept;
  Result<void> read_all();

  const std::shared_ptr<const PeerProcess> peer_;
  const Source source_;
  const Buffer own_;
  std::atomic<std::size_t> progress_{0};
  std::atomic<bool> ended_{false};
  std::atomic<bool> abandoned_{false};
  Result<void> result_;

  std::mutex mutex_;  // Guards what follows; held while bytes are copied to the given memory.
  std::byte* given_;
  Loop* loop_;
  std::function<void()> done_;  // Loop's thread only.
};

}  // namespace hawser::transport::shm
