#pragma once

#include <cstdint>
#include <utility>

#include "hawser/time.h"

namespace hawser::pipe {

// For how long a connection has been quiet. It is asked again and again, and sees what happened between two questions
// by the number of bytes. No clock.
class QuietTime {
 public:
  // `idle`: nothing is being received, executed or sent now. `bytes`: of both directions so far. Returns zero at the
  // first question.
  Duration check(Time now, bool idle, std::uint64_t bytes) noexcept {
    if (!std::exchange(asked_, true) || !idle || bytes != bytes_) begin_ = now;
    bytes_ = bytes;
    return now - begin_;
  }

 private:
  bool asked_ = false;
  std::uint64_t bytes_ = 0;  // At the last question.
  Time begin_{};             // The last question at which the connection was not quiet, or the first.
};

}  // namespace hawser::pipe
