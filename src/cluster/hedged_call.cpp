#include "hawser/detail/hedged_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cluster/cluster_state.h"
#include "hawser/detail/cluster_call_record.h"
#include "rpc/client/limited_wait.h"

namespace hawser::detail {

struct HedgedCall::Run {
  Run(ClusterAttempt first, std::uint32_t of, ClusterCallRecord& in)
      : record(in),
        state(first.state_),
        method(of),
        name(first.method_),
        options(first.options_),
        route(*first.route_),
        hedging(first.hedging()),
        policy(route.config != nullptr && route.config->retry ? *route.config->retry : state->options.retry),
        deadline(first.deadline_),
        changed(state->loop) {
    copies.push_back(std::make_unique<ClusterAttempt>(std::move(first)));
    const Time now = state->loop.now();
    delay = state->hedge_times.begin_call(hedging, method, now);
    if (delay) next_at = now + *delay;
  }

  // Another copy, at an endpoint that can begin it now. Null: not now.
  ClusterAttempt* copy() {
    if (!may_copy()) return nullptr;
    CallOptions with = options;
    if (deadline != Time::max()) with.timeout = deadline - state->loop.now();
    with.earlier_attempts += static_cast<unsigned>(copies.size());
    auto attempt = std::make_unique<ClusterAttempt>(route, std::move(with), name);
    for (const auto& earlier : copies) {
      attempt->avoid(earlier->node());
    }
    if (!attempt->try_begin()) return nullptr;
    state->hedge_times.begin_copy();
    record.note_copy();
    copies.push_back(std::move(attempt));
    ++running;
    return copies.back().get();
  }
  Time next_time(Time now) const noexcept {
    if (!delay || forbidden || copies.size() == hedging.attempts_max) return Time::max();
    return now + std::max(*delay, hedging.delay_min);
  }
  bool in_flight() const noexcept {
    return std::ranges::any_of(copies, [](const auto& one) { return one->client_ != nullptr; });
  }
  void observe(Duration latency, Time now) {
    if (!hedging.delay) state->hedge_times.observe(method, latency, now);
  }
  // The other copies would have taken longer than until now.
  void succeed(const ClusterAttempt& copy) {
    const Time now = state->loop.now();
    observe(now - copy.began_, now);
    for (const auto& other : copies) {
      if (other.get() == &copy || other->client_ == nullptr) continue;
      observe(now - other->began_, now);
      other->lose();
    }
  }
  bool may_copy() const noexcept {
    return !forbidden && copies.size() < hedging.attempts_max && state->hedge_times.may_copy() &&
           state->options.retry_budget->may_retry() && state->loop.now() < deadline &&
           std::ranges::all_of(copies, [](const auto& one) { return one->node() != nullptr; });
  }

  ClusterCallRecord& record;
  const std::shared_ptr<ClusterAttempt::State> state;
  const std::uint32_t method;
  const std::string_view name;
  const CallOptions options;
  const ClusterAttempt::Route& route;
  const HedgeOptions& hedging;
  const RetryPolicy& policy;
  const Time deadline;
  std::optional<Duration> delay;  // Between copies. Empty: none is made because of the time.
  Time next_at = Time::max();     // When a copy is made because of the time.
  exec::Condition changed;        // Notified when a copy is wanted at once, and when the call has its result.
  std::vector<std::unique_ptr<ClusterAttempt>> copies;
  std::size_t running = 0;  // Copies that have not ended.
  bool wanted = false;      // A copy has failed: the next one is made at once.
  bool forbidden = false;   // A server has forbidden another attempt (Error::retry_after).
  bool over = false;
  bool maybe_executed = false;
};

HedgedCall::HedgedCall(ClusterAttempt first, std::uint32_t method, ClusterCallRecord& record)
    : run_(std::make_unique<Run>(std::move(first), method, record)) {}
HedgedCall::HedgedCall(HedgedCall&&) noexcept = default;
HedgedCall::~HedgedCall() = default;

Task<ClusterAttempt*> HedgedCall::next() {
  Run& run = *run_;
  if (run.running == 0 && !run.over && !run.wanted) {
    ++run.running;
    co_return run.copies.front().get();
  }
  while (!run.over) {
    const Time now = run.state->loop.now();
    if (std::exchange(run.wanted, false) || now >= run.next_at) {
      ClusterAttempt* const copy = run.copy();
      run.next_at = run.next_time(now);
      if (copy != nullptr) co_return copy;
    }
    if (run.running == 0) break;  // The last failure is the result.
    rpc::LimitedWait wait(run.state->loop, run.changed, run.next_at, {});
    co_await wait.end();
  }
  co_return nullptr;
}

bool HedgedCall::end(const ClusterAttempt& copy, Error* error) {
  Run& run = *run_;
  if (run.over) return false;
  --run.running;
  if (error == nullptr) {
    run.succeed(copy);
    stop();
    return true;
  }
  const bool fatal = !run.policy.lists(*error);
  const bool maybe_executed = run.maybe_executed || run.in_flight();
  run.maybe_executed = run.maybe_executed || !error->not_executed();
  if (maybe_executed && error->not_executed()) {
    error->code = ErrorCode::outcome_unknown;
    error->text += "; another copy of the call may have been executed";
  }
  run.forbidden = run.forbidden || (error->retry_after && *error->retry_after < Duration::zero());
  if (run.forbidden) error->retry_after = Duration(-1);
  if (fatal || (run.running == 0 && !run.may_copy())) {
    stop();
  } else {
    run.state->options.retry_budget->failed();  // The failure of the call counts where the call is made again.
    run.wanted = true;
    run.changed.notify_all();
  }
  return true;
}

void HedgedCall::stop() noexcept {
  run_->over = true;
  run_->changed.notify_all();
}

}  // namespace hawser::detail
