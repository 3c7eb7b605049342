#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "hawser/time.h"

namespace hawser::protocol::grpc {

// Responses that a connection holds for its client.
struct ClientBacklog {
  std::size_t bytes = 0;
  std::size_t mark = 0;
  bool memory_left = true;

  constexpr bool above_mark() const noexcept { return bytes > mark; }
};

// The calls of a server's connection that wait until the client has taken earlier responses, in order. A client that
// reads is never refused for its speed. No I/O, no clock.
class WaitingCalls {
 public:
  // A client that takes nothing for so long may be waiting for a response of a call that waits: check() follows.
  static constexpr Duration wait_max = std::chrono::milliseconds(200);
  static constexpr std::size_t above_mark_calls_max = 8;

  bool empty() const noexcept { return calls_.empty(); }
  // The call that waits longest. It may have ended.
  std::uint32_t front() const noexcept { return calls_.front(); }
  void pop_front() { calls_.pop_front(); }
  void clear() noexcept { calls_.clear(); }
  // `calls_max` calls may be in flight. `has_ended(call)`: the call need not wait.
  template <class HasEnded>
  void add(std::uint32_t call, std::size_t calls_max, HasEnded has_ended) {
    if (calls_.size() >= 2 * calls_max) std::erase_if(calls_, has_ended);
    calls_.push_back(call);
  }

  // A call began, and the backlog is not above its mark.
  void on_low_backlog() noexcept { late_bytes_max_ = 0; }
  // A response that is not read, or a slow one, must not stop other calls: the client may be a proxy with many clients
  // of its own. So a few calls begin above the mark, and each gives way to the next one when `is_taken(call)`: the
  // client has taken its response. Returns true if `call` is one of them from now on.
  template <class IsTaken>
  bool begins_above_mark(std::uint32_t call, const ClientBacklog& backlog, IsTaken is_taken) {
    if (!backlog.memory_left || backlog.bytes / 2 > backlog.mark) return false;
    const auto place = std::ranges::find_if(above_mark_, [&](std::uint32_t one) { return one == 0 || is_taken(one); });
    if (place == above_mark_.end()) return false;
    *place = call;
    return true;
  }

  // Begins to watch what the client takes, `taken` bytes so far.
  void watch(std::uint64_t taken) noexcept { taken_at_check_ = taken; }
  // Returns true if a call must begin above the mark because the client has taken nothing since the last check: it may
  // be unable to take the other responses before it has this one.
  bool check(const ClientBacklog& backlog, std::uint64_t taken) noexcept {
    const bool stuck = taken == taken_at_check_;
    taken_at_check_ = taken;
    if (stuck && late_bytes_max_ == 0) late_bytes_max_ = backlog.bytes + backlog.mark;
    return stuck && backlog.memory_left && backlog.bytes <= late_bytes_max_;
  }

 private:
  std::deque<std::uint32_t> calls_;                               // Some have ended meanwhile.
  std::array<std::uint32_t, above_mark_calls_max> above_mark_{};  // See begins_above_mark(). 0: none.
  std::size_t late_bytes_max_ = 0;  // Bound of the backlog when check() lets a call begin; 0 until it has to.
  std::uint64_t taken_at_check_ = 0;
};

}  // namespace hawser::protocol::grpc
