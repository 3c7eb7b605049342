#include "hawser/recorder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/ascii_case.h"
#include "base/decimal_text.h"
#include "base/quick_random.h"
#include "hawser/crc32c.h"
#include "hawser/detail/stream_core.h"
#include "hawser/detail/stream_tap.h"
#include "observe/record_format.h"
#include "wire/metadata.h"

namespace hawser {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto lease = std::chrono::seconds(60);
constexpr std::size_t name_bytes_max = 64;

bool contains(std::string_view key, std::string_view word) noexcept {
  const auto same = [](char a, char b) { return ascii_lower(a) == ascii_lower(b); };
  return !std::ranges::search(key, word, same).empty();
}

// The streams of a call that is being recorded.
class StreamRecording;

}  // namespace

struct Recorder::State {
  explicit State(RecorderOptions given) : options(std::move(given)) {}

  const RecorderOptions options;
  std::atomic<bool> active{false};
  std::atomic<std::uint64_t> threshold{0};  // Calls whose random number, of 32 bits, is below are recorded.

  std::mutex lock;  // Guards what follows.
  std::string name = {};
  Clock::time_point begin{};
  Clock::time_point lease_end{};
  Part waiting = {};
  std::size_t in_flight_bytes = 0;          // Copies of requests whose calls have not ended.
  bool streams = false;                     // Calls with streams are recorded.
  std::vector<StreamRecording*> open = {};  // They have not ended.

  // False, and counted, if the copy of a request does not fit beside what waits.
  bool reserve(std::size_t bytes) {
    const std::lock_guard guard(lock);
    // A full queue must not keep a recording that nobody fetches: add() would not run again.
    if (!running(Clock::now())) return false;
    if (waiting.records.size() + in_flight_bytes + bytes > options.queue_bytes_max) {
      ++waiting.dropped;
      return false;
    }
    in_flight_bytes += bytes;
    return true;
  }
  // The same for an item of a stream whose call began at `since`. The caller holds the lock.
  bool reserve_item(Clock::time_point since, Clock::time_point now, std::size_t bytes) noexcept {
    if (!running(now) || since < begin || waiting.records.size() + in_flight_bytes + bytes > options.queue_bytes_max) {
      return false;
    }
    in_flight_bytes += bytes;
    return true;
  }
  void release(std::size_t bytes) noexcept {
    const std::lock_guard guard(lock);
    in_flight_bytes -= bytes;
  }
  void add(Clock::time_point at, const std::string& record) {
    const std::lock_guard guard(lock);
    if (!running(Clock::now()) || at < begin) return;
    if (waiting.records.size() + record.size() > options.queue_bytes_max) {
      ++waiting.dropped;
    } else {
      waiting.records += record;
      ++waiting.recorded;
    }
  }
  void skip() {
    const std::lock_guard guard(lock);
    if (!running(Clock::now())) return;
    ++waiting.skipped;
  }
  // Ends a recording that nobody fetches.
  bool running(Clock::time_point now) noexcept {
    if (active.load(std::memory_order_relaxed) && now < lease_end) return true;
    active.store(false, std::memory_order_relaxed);
    waiting = {};
    name.clear();
    forget_streams();
    return false;
  }
  // Frees the items of streams that have not ended. No more of them are recorded. The caller holds the lock.
  void forget_streams() noexcept;
};

namespace {

// The place of a request's copy, until its call has ended.
class Copy {
 public:
  Copy(Recorder::State& state, std::size_t bytes) : state_(state), bytes_(state.reserve(bytes) ? bytes : 0) {}
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() { release(); }
  explicit operator bool() const noexcept { return bytes_ != 0; }
  void release() noexcept {
    if (bytes_ != 0) state_.release(std::exchange(bytes_, 0));
  }

 private:
  Recorder::State& state_;
  std::size_t bytes_;
};

std::string kept_metadata(const RecorderOptions& options, MetadataView given) {
  std::string kept;
  std::string_view key;
  std::string_view value;
  for (wire::MetadataReader reader(given.bytes()); reader.next(key, value);) {
    if (std::ranges::any_of(options.secrets, [&](const std::string& word) { return contains(key, word); })) continue;
    const std::size_t before = kept.size();
    kept.resize(before + wire::metadata_entry_bytes(key, value));
    wire::write_metadata_entry(reinterpret_cast<std::byte*>(kept.data()) + before, key, value);
  }
  return kept;
}

// The copy of a request, and what becomes of its call.
struct RecordOfCall {
  RecordOfCall(IncomingCall& call, std::string kept, Clock::time_point since)
      : method(call.method()),
        metadata(std::move(kept)),
        body(call.request().coded ? std::string_view() : as_text(call.request().body)),
        payload(as_text(call.request().payload)),
        attachment(as_text(call.request().attachment)),
        begin(Clock::now()) {
    record = {.at = std::max<Duration>(begin - since, Duration::zero()),
              .method = method,
              .protocol = call.protocol(),
              .metadata = as_bytes(metadata),
              .body = as_bytes(body),
              .payload = as_bytes(payload),
              .attachment = as_bytes(attachment),
              .streams = call.streams()};
  }
  RecordOfCall(const RecordOfCall&) = delete;
  RecordOfCall& operator=(const RecordOfCall&) = delete;

  // The arguments came as JSON and have been converted.
  void set_arguments(Bytes arguments) {
    body = as_text(arguments);
    record.body = as_bytes(body);
  }
  void end(const IncomingCall& call, const Result<void>& outcome) noexcept {
    record.duration = Clock::now() - begin;
    record.outcome = outcome ? ErrorCode::ok : outcome.error().code;
    record.reply_bytes = call.reply_bytes();
    if (outcome) record.reply_checksum = call.reply_checksum();
  }

  const std::string method;
  const std::string metadata;
  std::string body;
  const std::string payload;
  const std::string attachment;
  const Clock::time_point begin;
  observe::RecordedCall record;
};

class StreamRecording final : detail::StreamTap {
 public:
  // `call` outlives this object.
  StreamRecording(Recorder::State& state, RecordOfCall& call, std::shared_ptr<detail::StreamCore> core)
      : state_(state), call_(call), core_(std::move(core)) {
    {
      const std::lock_guard guard(state_.lock);
      state_.open.push_back(this);
    }
    core_->add_tap(*this);
  }
  StreamRecording(const StreamRecording&) = delete;
  StreamRecording& operator=(const StreamRecording&) = delete;
  ~StreamRecording() {
    core_->remove_tap(*this);
    const std::lock_guard guard(state_.lock);
    std::erase(state_.open, this);
    state_.in_flight_bytes -= events_.size();
  }

  Clock::time_point begun() const noexcept { return call_.begin; }
  // The call has ended. Its record refers to this object.
  void end(const IncomingCall& call, const Result<void>& outcome) noexcept {
    core_->remove_tap(*this);
    const std::lock_guard guard(state_.lock);
    std::erase(state_.open, this);
    call_.end(call, outcome);
    call_.record.events = as_bytes(events_);
    call_.record.truncated = truncated_.load(std::memory_order_relaxed);
  }
  // The recording ends before the call. Any thread, with the lock of the state. Appends what is known.
  void append_part(std::string& records, Clock::time_point now) const {
    observe::RecordedCall part = call_.record;
    part.duration = now - call_.begin;
    part.events = as_bytes(events_);
    part.truncated = true;
    observe::append_record(records, part);
  }
  // The recording has ended. Any thread, with the lock of the state.
  void forget() noexcept {
    truncated_.store(true, std::memory_order_relaxed);
    state_.in_flight_bytes -= events_.size();
    events_ = {};
  }

 private:
  void on_received(Bytes body, Bytes payload) noexcept override {
    add({.kind = observe::StreamEvent::Kind::caller_item, .body = body, .payload = payload});
  }
  void on_received_end() noexcept override { add({.kind = observe::StreamEvent::Kind::caller_end}); }
  void on_sent(Bytes body, std::span<const ConstBuffer> pieces) noexcept override {
    if (truncated_.load(std::memory_order_relaxed)) return;
    observe::StreamEvent event{
        .kind = observe::StreamEvent::Kind::handler_item, .bytes = body.size(), .checksum = crc32c(body)};
    for (const ConstBuffer& piece : pieces) {
      event.bytes += piece.size;
      event.checksum = crc32c(event.checksum, {piece.data, piece.size});
    }
    add(event);
  }
  // Nothing is recorded after the first item that does not fit: a later one would be out of order.
  void add(observe::StreamEvent event) noexcept {
    if (truncated_.load(std::memory_order_relaxed)) return;
    const Clock::time_point now = Clock::now();
    event.at = std::max<Duration>(now - call_.begin, Duration::zero());
    const RecorderOptions& options = state_.options;
    const std::size_t bytes = event.body.size() + event.payload.size() + observe::event_overhead_bytes;
    const std::lock_guard guard(state_.lock);
    if (truncated_.load(std::memory_order_relaxed)) return;  // Since the last look.
    if (++items_ > options.stream_items_max ||
        bytes > options.stream_bytes_max - std::min(events_.size(), options.stream_bytes_max) ||
        !state_.reserve_item(call_.begin, now, bytes)) {
      truncated_.store(true, std::memory_order_relaxed);
      return;
    }
    const std::size_t before = events_.size();
    try {
      observe::append_event(events_, event);
    } catch (const std::bad_alloc&) {
      events_.resize(before);
      truncated_.store(true, std::memory_order_relaxed);
    }
    state_.in_flight_bytes -= bytes - (events_.size() - before);  // The event may be shorter.
  }

  Recorder::State& state_;
  RecordOfCall& call_;
  const std::shared_ptr<detail::StreamCore> core_;
  std::atomic<bool> truncated_{false};  // Set with the state's lock.
  std::size_t items_ = 0;               // The lock guards this and what follows, for append_part() and forget().
  std::string events_;
};

}  // namespace

void Recorder::State::forget_streams() noexcept {
  for (StreamRecording* const one : open) one->forget();
}

namespace {

Task<Result<void>> recorded(std::shared_ptr<Recorder::State> state, IncomingCall& call, Next next) {
  // The request is copied before the handler runs: it may use its memory for the result. Arguments that come
  // compressed or as JSON are copied behind it, from the memory that they were converted to.
  const bool coded = call.request().coded;
  std::string metadata = kept_metadata(state->options, call.metadata());
  const std::size_t bytes = call.request_bytes() + metadata.size();
  bool streams = false;
  Clock::time_point since;
  {
    const std::lock_guard guard(state->lock);
    streams = state->streams;
    since = state->begin;
  }
  if ((call.streams() && (!streams || coded || call.stream_core() == nullptr)) ||
      bytes > state->options.request_bytes_max) {
    state->skip();
    co_return co_await next();
  }
  Copy copy(*state, bytes + call.method().size());
  if (!copy) {
    co_return co_await next();
  }
  RecordOfCall record(call, std::move(metadata), since);
  call.checksum_reply();
  std::optional<StreamRecording> items;
  if (call.streams()) items.emplace(*state, record, call.stream_core()->shared_from_this());
  Result<void> outcome = co_await next();
  if (coded) {
    if (call.request().coded || call.request_bytes() + record.metadata.size() > state->options.request_bytes_max) {
      state->skip();
      co_return outcome;
    }
    record.set_arguments(call.request().body);
  }
  items ? items->end(call, outcome) : record.end(call, outcome);
  std::string encoded;
  observe::append_record(encoded, record.record);
  items.reset();
  copy.release();
  state->add(record.begin, encoded);
  co_return outcome;
}

}  // namespace

Recorder::Recorder(RecorderOptions options) {
  if (options.queue_bytes_max == 0 || options.request_bytes_max == 0) {
    throw std::invalid_argument("hawser: RecorderOptions::queue_bytes_max is " +
                                std::to_string(options.queue_bytes_max) + ", request_bytes_max is " +
                                std::to_string(options.request_bytes_max) + ", and both must be at least 1");
  }
  const auto check = [](const char* name, std::size_t bytes) {
    if (bytes <= RecorderOptions::request_bytes_limit) return;
    throw std::invalid_argument("hawser: RecorderOptions::" + std::string(name) + " (" + std::to_string(bytes) +
                                ") exceeds " + std::to_string(RecorderOptions::request_bytes_limit) + ": lower it");
  };
  check("request_bytes_max", options.request_bytes_max);
  check("stream_bytes_max", options.stream_bytes_max);
  state_ = std::make_shared<State>(std::move(options));
}

bool Recorder::Calls::skips(MetadataView) const noexcept { return !recorder->active.load(std::memory_order_relaxed); }

Task<Result<void>> Recorder::Calls::operator()(IncomingCall& call, Next next) const {
  if (!recorder->active.load(std::memory_order_relaxed)) [[likely]]
    return next();
  // Routes have method and path of HTTP as their name.
  if (call.method().find(' ') != std::string_view::npos) return next();
  if ((quick_random() >> 32) >= recorder->threshold.load(std::memory_order_relaxed)) return next();
  return recorded(recorder, call, std::move(next));
}

Result<Recorder::Part> Recorder::take(std::string_view recording, double ratio, bool last, bool streams) const {
  if (recording.empty() || recording.size() > name_bytes_max) {
    return fail(ErrorCode::invalid_argument, "the name of a recording has 1 to " + std::to_string(name_bytes_max) +
                                                 " bytes; this one has " + std::to_string(recording.size()));
  }
  if (!(ratio >= 0 && ratio <= 1)) {
    return fail(ErrorCode::invalid_argument,
                "the part of the calls to be recorded is from 0 to 1, and " + short_text(ratio, 6) + " is not");
  }
  State& state = *state_;
  const Clock::time_point now = Clock::now();
  const std::lock_guard guard(state.lock);
  if (state.running(now) && state.name != recording) {
    return fail(ErrorCode::overloaded, "another recording of this server runs: wait until it has ended");
  }
  if (state.name.empty()) {
    state.name = recording;
    state.begin = now;
    state.waiting = {};
  }
  state.streams = streams;
  if (last) {
    for (const StreamRecording* const one : state.open) {
      if (one->begun() < state.begin) continue;
      one->append_part(state.waiting.records, now);
      ++state.waiting.recorded;
    }
    state.forget_streams();
  }
  state.lease_end = last ? now : now + lease;
  state.threshold.store(static_cast<std::uint64_t>(ratio * 0x1p32), std::memory_order_relaxed);
  state.active.store(true, std::memory_order_relaxed);
  Part part = std::move(state.waiting);
  state.waiting = {.recorded = part.recorded, .dropped = part.dropped, .skipped = part.skipped};
  return part;
}

}  // namespace hawser
