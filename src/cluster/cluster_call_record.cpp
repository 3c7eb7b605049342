#include "hawser/detail/cluster_call_record.h"

#include <cstdint>

#include "cluster/cluster_state.h"
#include "cluster/status_name.h"

namespace hawser::detail {

ClusterCallRecord::ClusterCallRecord(ClusterAttempt::State& state, std::string_view method) noexcept
    : state_(state), method_(method), began_(state.metrics ? state.loop.now() : Time()) {}

ClusterCallRecord::~ClusterCallRecord() {
  if (ended_ || !state_.metrics) return;
  state_.metrics->end_call(method_, cluster::status_cancelled, state_.loop.now() - began_, retries_);
}

void ClusterCallRecord::end(const Error* error) noexcept {
  ended_ = true;
  if (!state_.metrics) return;
  state_.metrics->end_call(method_, state_.status_of(error), state_.loop.now() - began_, retries_);
}

}  // namespace hawser::detail
