#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/timer.h"

namespace hawser::rpc {

class PortSession;

// Cancels the calls of the sessions of a loop in portions, with other work of the loop in between: a connection may
// have thousands of calls, and many connections may end together. Loop's thread only.
class CallCancelling {
 public:
  // So many calls are cancelled in one tick. Further ones follow in the next ticks.
  static constexpr std::size_t calls_tick_max = 1024;

  explicit CallCancelling(Loop& loop) noexcept : loop_(loop) {}

  // Requests the calls of these ids to stop, now or soon. Those that have been answered then are left alone.
  void add(PortSession& session, const Error& why, std::vector<std::uint32_t> ids);
  // The session is being destroyed.
  void remove(const PortSession& session) noexcept;

 private:
  struct Batch {
    PortSession* session;
    Error why;
    std::vector<std::uint32_t> ids;  // The last one is cancelled next.
  };
  void begin_tick() noexcept;
  void cancel_some() noexcept;

  Loop& loop_;
  std::list<Batch> batches_;
  Time tick_{};                // The tick of the last cancellation.
  std::size_t cancelled_ = 0;  // Calls that were cancelled in that tick.
  bool working_ = false;
  MemberTimer<&CallCancelling::begin_tick> timer_{*this};
};

}  // namespace hawser::rpc
