#include "hawser/detail/cluster_call_record.h"

#include <cstdint>

#include "cluster/cluster_state.h"
#include "cluster/status_name.h"

namespace hawser::detail {

ClusterCallRecord::ClusterCallRecord(ClusterAttempt::State& state, std::string_view method) noexcept
    : state_(state), method_(method), began_(state.metrics ? state.loop.now() : Time()) {}

ClusterCallRecord::~ClusterCallRecord() {
  if (ended_ || !state_.metrics) return;
  report(cluster::status_cancelled);
}

void ClusterCallRecord::begin_pause() noexcept {
  if (state_.metrics) pause_began_ = state_.loop.now();
}

void ClusterCallRecord::note_retry() noexcept {
  ++retries_;
  if (state_.metrics) pauses_ += state_.loop.now() - pause_began_;
}

void ClusterCallRecord::report(std::int32_t status) noexcept {
  state_.metrics->end_call(
      method_, status, {.time = state_.loop.now() - began_, .retries = retries_, .copies = copies_, .pauses = pauses_});
}

void ClusterCallRecord::end(const Error* error) noexcept {
  ended_ = true;
  if (!state_.metrics) return;
  report(state_.status_of(error));
}

}  // namespace hawser::detail
