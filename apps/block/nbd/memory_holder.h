#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hawser/time.h"

// Which connections end when requests wait for memory. No I/O and no clock.
namespace hawser::block::nbd {

// Whether a client moves the bytes that make memory wait: it sends the data of its write and takes its replies.
class HolderPace {
 public:
  // Called again and again. `holds`: the client makes memory wait. `moved`: all bytes that it has moved so far.
  // It has moved on if it has moved `bytes_min` since it moved on the last time.
  void observe(Time now, bool holds, std::uint64_t moved, std::uint64_t bytes_min) noexcept;
  // Since the client has moved on the last time, or has begun to make memory wait.
  Duration silence(Time now) const noexcept { return now - since_; }

 private:
  Time since_ = {};
  std::uint64_t moved_ = 0;
};

// The paces of a client: for the choice of those that end because memory is short, and of those that do nothing.
class ClientActivity {
 public:
  struct State {
    bool holds = false;  // The client makes memory wait.
    bool works = false;  // A request of it is executed.
  };

  void begin(Time now) noexcept { use_.observe(now, false, 0, 1); }
  // See HolderPace::observe().
  void observe(Time now, State state, std::uint64_t moved, std::uint64_t bytes_min) noexcept {
    pace_.observe(now, state.holds, moved, bytes_min);
    use_.observe(now, !state.works, moved, 1);
  }
  // See HolderPace::silence().
  Duration silence(Time now) const noexcept { return pace_.silence(now); }
  // Since the client has sent or received something, or a request has ended.
  Duration idle(Time now) const noexcept { return use_.silence(now); }

 private:
  HolderPace pace_;
  HolderPace use_;
};

// A connection, as the choice sees it.
struct NbdMemoryHolder {
  std::size_t held_bytes = 0;     // Memory that waits for its client.
  std::size_t missing_bytes = 0;  // Bytes that the client still has to move for it.
  bool silent = false;
};

// The numbers of the holders to end for a request that waits for `wanted` bytes of `memory_bytes`: all that are silent;
// if there is none, the one that has most to move; and none if the memory suffices when the server has executed the
// requests in progress.
std::vector<std::size_t> holders_to_end(std::span<const NbdMemoryHolder> holders, std::size_t memory_bytes,
                                        std::size_t wanted);

}  // namespace hawser::block::nbd
