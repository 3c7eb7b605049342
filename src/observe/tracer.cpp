#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>

#include "hawser/tracing.h"
#include "observe/quick_random.h"
#include "observe/tracer_state.h"

namespace hawser {
namespace {

std::uint64_t next_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// The span of one call, from the beginning of an interceptor to its end, or to its destruction.
template <class CallInfo>
class SpanOfCall {
 public:
  SpanOfCall(Tracer::State& tracer, CallInfo& call, std::optional<TraceContext> parent, Span::Kind kind)
      : tracer_(tracer), call_(call), kind_(kind), parent_(std::move(parent)) {
    if (parent_ ? !parent_->sampled : !tracer.sample()) return;
    own_ = parent_ ? parent_->child() : TraceContext::begin(true);
    static_cast<void>(call.set_metadata("traceparent", own_->traceparent()));
  }
  SpanOfCall(const SpanOfCall&) = delete;
  SpanOfCall& operator=(const SpanOfCall&) = delete;
  ~SpanOfCall() {
    if (ended_) return;
    const Error error{ErrorCode::cancelled, ErrorScope::call, Initiator::local, 0, "the call was dropped"};
    try {
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
    Span span;
    if (own_) {
      span.reason = Span::Reason::sampled;
    } else if (error != nullptr && tracer_.failed_calls.load(std::memory_order_relaxed)) {
      span.reason = Span::Reason::failed;
    } else if (duration.count() >= tracer_.slow_calls.load(std::memory_order_relaxed)) {
      span.reason = Span::Reason::slow;
    } else {
      return;
    }
    if (!own_) own_ = parent_ ? parent_->child() : TraceContext::begin(false);
    span.kind = kind_;
    span.trace_id = own_->trace_id;
    span.span_id = own_->span_id;
    if (parent_) span.parent_id = parent_->span_id;
    span.duration = duration;
    span.begin =
        std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(duration);
    span.request_bytes = call_.request_bytes();
    span.reply_bytes = call_.reply_bytes();
    if constexpr (requires { call_.attempts(); }) span.attempts = call_.attempts();
    span.method = call_.method();
    span.peer = call_.peer();
    span.protocol = call_.protocol();
    if (error != nullptr) {
      span.failed = true;
      span.code = error->code;
      span.error = error->text;
    }
    tracer_.record(span);
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

bool Tracer::ServerSpans::skips(MetadataView metadata) const noexcept {
  if (tracer->ratio.load(std::memory_order_relaxed) > 0 || tracer->failed_calls.load(std::memory_order_relaxed) ||
      tracer->slow_calls.load(std::memory_order_relaxed) != forever.count()) {
    return false;
  }
  if (metadata.empty()) return true;
  try {
    const std::optional<TraceContext> parent = trace_of(metadata);
    return !parent || !parent->sampled;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

Task<Result<void>> Tracer::ServerSpans::operator()(IncomingCall& call, Next next) const {
  SpanOfCall<IncomingCall> span(*tracer, call, trace_of(call.metadata()), Span::Kind::server);
  auto rest = next();
  Result<void> outcome = co_await std::move(rest);
  span.end(outcome);
  co_return outcome;
}

Task<Result<void>> Tracer::ClientSpans::operator()(OutgoingCall& call, Next next) const {
  std::optional<TraceContext> parent;
  if (const auto field = call.find_metadata("traceparent")) {
    parent = TraceContext::parse(*field, call.find_metadata("tracestate").value_or(std::string_view()));
  }
  SpanOfCall<OutgoingCall> span(*tracer, call, std::move(parent), Span::Kind::client);
  auto rest = next();
  Result<void> outcome = co_await std::move(rest);
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
    throw std::invalid_argument("hawser: TracerOptions: ratio must be from 0 to 1");
  }
  if (given.spans_per_thread == 0 || (given.spans_per_thread & (given.spans_per_thread - 1)) != 0) {
    throw std::invalid_argument("hawser: TracerOptions: spans_per_thread must be a power of two");
  }
}

bool Tracer::State::sample() const noexcept {
  const double part = ratio.load(std::memory_order_relaxed);
  if (part <= 0) return false;
  return part >= 1 || static_cast<double>(observe::quick_random() >> 11) * 0x1p-53 < part;
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
                "the ratio of a tracer is a number from 0 to 1, not " + std::to_string(ratio));
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
