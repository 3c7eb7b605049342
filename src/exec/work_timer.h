#pragma once

#include "hawser/time.h"

namespace hawser {
class Loop;
namespace detail {
struct LoopAccess;
}
}  // namespace hawser

namespace hawser::exec {

// Learns how long the work of a tick took, from the clock that the loop reads anyway: see LoopAccess::time_work().
class WorkTimer {
 public:
  // The loop has read its clock.
  virtual void on_clock(Time now) noexcept = 0;

 protected:
  WorkTimer() noexcept = default;
  ~WorkTimer() = default;

 private:
  friend class hawser::Loop;
  friend struct hawser::detail::LoopAccess;
  WorkTimer* next_ = nullptr;
};

}  // namespace hawser::exec
