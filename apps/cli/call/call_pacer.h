#pragma once

#include <cstdint>
#include <string>

#include "hawser/loop.h"
#include "hawser/sync.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser::cli {

// Sends calls at intended times, whether or not earlier calls have been answered. Used on one loop.
class CallPacer {
 public:
  explicit CallPacer(unsigned in_flight_max) : free_(in_flight_max) {}

  // Returns when the next call may be sent: not before `at`, and not while in_flight_max calls are in flight. The call
  // keeps the permit until it has ended.
  Task<Permit> admit(Time at);
  // Calls that were sent more than 1 ms after their intended time.
  std::uint64_t late() const noexcept { return late_; }
  // A line with their number; empty without one.
  std::string late_line() const;

 private:
  Loop& loop_ = *Loop::current();
  Semaphore free_;
  std::uint64_t calls_ = 0;
  std::uint64_t late_ = 0;
};

}  // namespace hawser::cli
