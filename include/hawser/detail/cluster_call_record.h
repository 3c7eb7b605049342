#pragma once

#include <string_view>

#include "hawser/detail/cluster_attempt.h"
#include "hawser/error.h"
#include "hawser/time.h"

namespace hawser::detail {

// A call in the metrics of its client, with all its attempts and pauses. It begins with this object. A call without a
// result was cancelled. The metrics of a client end with it, so that later results are not counted.
class ClusterCallRecord {
 public:
  // `state` and `method` outlive this object.
  ClusterCallRecord(ClusterAttempt::State& state, std::string_view method) noexcept;
  ClusterCallRecord(const ClusterCallRecord&) = delete;
  ClusterCallRecord& operator=(const ClusterCallRecord&) = delete;
  ~ClusterCallRecord();

  void note_retry() noexcept { ++retries_; }
  // The call has its result. Called at most once; null: success.
  void end(const Error* error) noexcept;

 private:
  ClusterAttempt::State& state_;
  const std::string_view method_;
  const Time began_;
  unsigned retries_ = 0;  // By the policy.
  bool ended_ = false;
};

}  // namespace hawser::detail
