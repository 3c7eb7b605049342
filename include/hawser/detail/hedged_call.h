#pragma once

#include <cstdint>
#include <memory>

#include "hawser/error.h"
#include "hawser/task.h"

namespace hawser::detail {

class ClusterAttempt;
class ClusterCallRecord;

// The decisions about the copies of one call (HedgeOptions), without types of methods.
class HedgedCall {
 public:
  // `record` outlives this object.
  HedgedCall(ClusterAttempt first, std::uint32_t method, ClusterCallRecord& record);
  HedgedCall(HedgedCall&&) noexcept;
  ~HedgedCall();  // After the ends of the copies, or after their coroutines were destroyed.

  // The next copy to make, valid as long as this object. Null when the call has its result.
  Task<ClusterAttempt*> next();
  // A copy has ended, with a result if `error` is null. True if its outcome is that of the call, as far as is known.
  // Changes `error` if it is not true of all copies.
  bool end(const ClusterAttempt& copy, Error* error);
  // The call ends with an exception of a copy.
  void stop() noexcept;

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

}  // namespace hawser::detail
