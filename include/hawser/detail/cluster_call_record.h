#pragma once

#include <cstdint>
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

  // Between them, the call waits for its next attempt.
  void begin_pause() noexcept;
  void note_retry() noexcept;
  void note_copy() noexcept { ++copies_; }
  // The call has its result. Called at most once; null: success.
  void end(const Error* error) noexcept;

 private:
  void report(std::int32_t status) noexcept;

  ClusterAttempt::State& state_;
  const std::string_view method_;
  const Time began_;
  unsigned retries_ = 0;  // By the policy.
  unsigned copies_ = 0;
  Time pause_began_{};
  Duration pauses_{};  // Before retries.
  bool ended_ = false;
};

}  // namespace hawser::detail
