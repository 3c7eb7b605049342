#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>

#include "base/decimal_text.h"
#include "hawser/tracing.h"
#include "observe/tracer_state.h"

namespace hawser {
namespace {

std::uint64_t next_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// Why a call that was not sampled is recorded, or nothing.
std::optional<Span::Reason> reason_for(const Tracer::State& tracer, const Error* error, Duration duration) noexcept {
  if (error != nullptr && tracer.failed_calls.load(std::memory_order_relaxed)) return Span::Reason::failed;
  if (duration.count() >= tracer.slow_calls.load(std::memory_order_relaxed)) return Span::Reason::slow;
  return std::nullopt;
}

// The span of a call that ends now. `own` is its position in the trace, and `parent` that of its caller, if there is
// one.
template <class CallInfo>
Span span_of(const CallInfo& call, Span::Kind kind, Span::Reason reason, const TraceContext& own,
             const std::optional<TraceContext>& parent, Duration duration, const Error* error) {
  Span span;
  span.kind = kind;
  span.reason = reason;
  span.trace_id = own.trace_id;
  span.span_id = own.span_id;
  if (parent) span.parent_id = parent->span_id;
  span.duration = duration;
  span.begin =
      std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(duration);
  span.request_bytes = call.request_bytes();
  span.reply_bytes = call.reply_bytes();
  if constexpr (requires { call.attempts(); }) span.attempts = call.attempts();
  if constexpr (requires { call.route(); }) {
    span.method = call.route();
  } else {
    span.method = call.method();
  }
  span.peer = call.peer();
  span.protocol = call.protocol();
  if (error != nullptr) {
    span.failed = true;
    span.code = error->code;
    span.error = error->text;
  }
  return span;
}

// The position of a call that was not sampled, once it is to be recorded.
TraceContext position_behind(const std::optional<TraceContext>& parent) {
  return parent ? parent->child() : TraceContext::begin(false);
}

// The span of one call, from the beginning of an interceptor to its end, or to its destruction.
template <class CallInfo>
class SpanOfCall {
 public:
  SpanOfCall(Tracer::State& tracer, CallInfo& call, detail::CallDraw& draw, std::optional<TraceContext> parent,
             Span::Kind kind)
      : tracer_(tracer), call_(call), kind_(kind), parent_(std::move(parent)) {
    if (!tracer.samples(parent_, draw)) return;
    own_ = parent_ ? parent_->child() : TraceContext::begin(true);
    static_cast<void>(call.set_metadata("traceparent", own_->traceparent()));
  }
  SpanOfCall(const SpanOfCall&) = delete;
  SpanOfCall& operator=(const SpanOfCall&) = delete;
  ~SpanOfCall() {
    if (ended_) return;
    try {
      const Error error = Error::of_call(ErrorCode::cancelled, "the call was dropped");
      record(&error);
    } catch (const std::exception&) {
      tracer_.lost.fetch_add(1, std::memory_order_relaxed);
    }
  }

  void end(const Result<void>& outcome) {
    ended_ = true;
    record(outcome ? nullptr : &outcome.error());
  }

 private:
  void record(const Error* error) {
    const Duration duration = call_.loop().now() - call_.begin();
    const std::optional<Span::Reason> reason = own_ ? Span::Reason::sampled : reason_for(tracer_, error, duration);
    if (!reason) return;
    if (!own_) own_ = position_behind(parent_);
    tracer_.record(span_of(call_, kind_, *reason, *own_, parent_, duration, error));
  }

  Tracer::State& tracer_;
  CallInfo& call_;
  const Span::Kind kind_;
  const std::optional<TraceContext> parent_;
  std::optional<TraceContext> own_;  // Empty for a call that is not sampled.
  bool ended_ = false;
};

// The latest ring that a thread has used, so that it needs no lock to find it.
struct LastRing {
  std::uint64_t tracer = 0;
  observe::SpanRing* ring = nullptr;
};

}  // namespace

// ---- Interceptors ----

bool Tracer::ServerSpans::skips(MetadataView metadata, detail::CallDraw& draw) const noexcept {
  if (metadata.empty()) return !tracer->samples(std::nullopt, draw);
  try {
    return !tracer->samples(trace_of(metadata), draw);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void Tracer::ServerSpans::skipped(const SkippedCall& call) const noexcept {
  const auto reason = reason_for(*tracer, call.error(), call.duration());
  if (!reason) return;
  try {
    const std::optional<TraceContext> parent = trace_of(call.metadata());
    tracer->record(
        span_of(call, Span::Kind::server, *reason, position_behind(parent), parent, call.duration(), call.error()));
  } catch (const std::exception&) {
    tracer->lost.fetch_add(1, std::memory_order_relaxed);
  }
}

Task<Result<void>> Tracer::ServerSpans::operator()(IncomingCall& call, Next next) const {
  SpanOfCall<IncomingCall> span(*tracer, call, call.draw(), trace_of(call.metadata()), Span::Kind::server);
  Result<void> outcome = co_await next();
  span.end(outcome);
  co_return outcome;
}

Task<Result<void>> Tracer::ClientSpans::operator()(OutgoingCall& call, Next next) const {
  std::optional<TraceContext> parent;
  // The fields of tracestate, of which there may be several, go to the peer as they are.
  if (const auto field = call.find_metadata("traceparent")) parent = TraceContext::parse(*field);
  detail::CallDraw draw;
  SpanOfCall<OutgoingCall> span(*tracer, call, draw, std::move(parent), Span::Kind::client);
  Result<void> outcome = co_await next();
  span.end(outcome);
  co_return outcome;
}

// ---- State ----

Tracer::State::State(const TracerOptions& given)
    : options(given),
      ratio(given.ratio),
      failed_calls(given.failed_calls),
      slow_calls(given.slow_calls.count()),
      number(next_number()) {
  if (!(given.ratio >= 0 && given.ratio <= 1)) {
    throw std::invalid_argument("hawser: TracerOptions::ratio is " + short_text(given.ratio, 6) +
                                ", and must be from 0 to 1");
  }
  if (given.spans_per_thread == 0 || (given.spans_per_thread & (given.spans_per_thread - 1)) != 0) {
    throw std::invalid_argument("hawser: TracerOptions::spans_per_thread is " + std::to_string(given.spans_per_thread) +
                                ", and must be a power of two");
  }
}

bool Tracer::State::samples(const std::optional<TraceContext>& parent, detail::CallDraw& draw) const noexcept {
  return parent ? parent->sampled : draw.within(ratio.load(std::memory_order_relaxed));
}

observe::SpanRing* Tracer::State::ring() noexcept {
  thread_local LastRing last;
  // Numbers are not used again, so the ring belongs to this object, which owns it.
  if (last.tracer == number) return last.ring;
  const std::scoped_lock guard(lock_);
  try {
    const auto at = rings_.find(std::this_thread::get_id());
    std::shared_ptr<observe::SpanRing> found;
    if (at != rings_.end()) {
      found = at->second;
    } else if (rings_.size() < options.threads_max) {
      found = std::make_shared<observe::SpanRing>(options.spans_per_thread);
      rings_.emplace(std::this_thread::get_id(), found);
    } else {
      return nullptr;
    }
    last = {number, found.get()};
    return last.ring;
  } catch (const std::exception&) {
    return nullptr;  // No memory.
  }
}

void Tracer::State::record(const Span& span) noexcept {
  if (observe::SpanRing* const own = ring()) {
    own->write(span);
  } else {
    lost.fetch_add(1, std::memory_order_relaxed);
  }
}

std::vector<std::shared_ptr<observe::SpanRing>> Tracer::State::rings() const {
  const std::scoped_lock guard(lock_);
  std::vector<std::shared_ptr<observe::SpanRing>> all;
  for (const auto& [thread, ring] : rings_) all.push_back(ring);
  return all;
}

// ---- Tracer ----

Tracer::Tracer(TracerOptions options) : state_(std::make_shared<State>(options)) {}

Result<void> Tracer::set_ratio(double ratio) const {
  if (!(ratio >= 0 && ratio <= 1)) {
    return fail(ErrorCode::invalid_argument,
                "the ratio of a tracer is a number from 0 to 1, not " + short_text(ratio, 6));
  }
  state_->ratio.store(ratio, std::memory_order_relaxed);
  return {};
}
void Tracer::set_failed_calls(bool failed_calls) const noexcept {
  state_->failed_calls.store(failed_calls, std::memory_order_relaxed);
}
void Tracer::set_slow_calls(Duration slow_calls) const noexcept {
  state_->slow_calls.store(slow_calls.count(), std::memory_order_relaxed);
}
TracerOptions Tracer::options() const noexcept {
  TracerOptions options = state_->options;
  options.ratio = state_->ratio.load(std::memory_order_relaxed);
  options.failed_calls = state_->failed_calls.load(std::memory_order_relaxed);
  options.slow_calls = Duration(state_->slow_calls.load(std::memory_order_relaxed));
  return options;
}

void Tracer::record(const Span& span) const { state_->record(span); }

std::vector<Span> Tracer::latest(std::size_t spans_max) const {
  std::vector<Span> all;
  for (const auto& ring : state_->rings()) {
    const std::uint64_t end = ring->written();
    const std::uint64_t kept = std::min<std::uint64_t>(end - ring->oldest(), spans_max);
    for (std::uint64_t number = end - kept; number < end; ++number) {
      if (std::optional<Span> span = ring->read(number)) all.push_back(std::move(*span));
    }
  }
  const auto ended = [](const Span& span) { return span.begin.time_since_epoch() + span.duration; };
  std::ranges::sort(all, [&](const Span& a, const Span& b) { return ended(a) > ended(b); });
  if (all.size() > spans_max) all.resize(spans_max);
  return all;
}

Tracer::Counters Tracer::counters() const {
  Counters counters;
  for (const auto& ring : state_->rings()) counters.recorded += ring->written();
  counters.lost = state_->lost.load(std::memory_order_relaxed);
  counters.exported = state_->exported.load(std::memory_order_relaxed);
  counters.export_missed = state_->export_missed.load(std::memory_order_relaxed);
  counters.export_failed = state_->export_failed.load(std::memory_order_relaxed);
  counters.export_retries = state_->export_retries.load(std::memory_order_relaxed);
  return counters;
}

}  // namespace hawser
