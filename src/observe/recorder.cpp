#include "hawser/recorder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "observe/quick_random.h"
#include "observe/record_format.h"
#include "wire/metadata.h"

namespace hawser {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto lease = std::chrono::seconds(60);
constexpr std::size_t name_bytes_max = 64;

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool contains(std::string_view key, std::string_view word) noexcept {
  const auto same = [](char a, char b) { return lower(a) == lower(b); };
  return !std::ranges::search(key, word, same).empty();
}

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
  std::size_t in_flight_bytes = 0;  // Copies of requests whose calls have not ended.

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
  bool running(Clock::time_point now) {
    if (active.load(std::memory_order_relaxed) && now < lease_end) return true;
    active.store(false, std::memory_order_relaxed);
    waiting = {};
    name.clear();
    return false;
  }
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

Task<Result<void>> recorded(std::shared_ptr<Recorder::State> state, IncomingCall& call, Next next) {
  // The request is copied before the handler runs: it may use its memory for the result.
  const detail::IncomingRequest& request = call.request();
  const std::string metadata = kept_metadata(state->options, call.metadata());
  const std::size_t bytes = call.request_bytes() + metadata.size();
  if (call.streams() || bytes > state->options.request_bytes_max) {
    state->skip();
    auto rest = next();
    co_return co_await std::move(rest);
  }
  Copy copy(*state, bytes + call.method().size());
  if (!copy) {
    auto rest = next();
    co_return co_await std::move(rest);
  }
  const std::string method(call.method());
  const std::string body(as_text(request.body));
  const std::string payload(as_text(request.payload));
  const std::string attachment(as_text(request.attachment));
  observe::RecordedCall record{.method = method,
                               .protocol = call.protocol(),
                               .metadata = as_bytes(metadata),
                               .body = as_bytes(body),
                               .payload = as_bytes(payload),
                               .attachment = as_bytes(attachment)};
  const Clock::time_point begin = Clock::now();
  call.checksum_reply();
  auto rest = next();
  Result<void> outcome = co_await std::move(rest);
  record.duration = Clock::now() - begin;
  record.outcome = outcome ? ErrorCode::ok : outcome.error().code;
  record.reply_bytes = call.reply_bytes();
  if (outcome) record.reply_checksum = call.reply_checksum();
  Clock::time_point since;
  {
    const std::lock_guard guard(state->lock);
    since = state->begin;
  }
  record.at = std::max<Duration>(begin - since, Duration::zero());
  std::string encoded;
  observe::append_record(encoded, record);
  copy.release();
  state->add(begin, encoded);
  co_return outcome;
}

}  // namespace

Recorder::Recorder(RecorderOptions options) {
  if (options.queue_bytes_max == 0 || options.request_bytes_max == 0) {
    throw std::invalid_argument("hawser: RecorderOptions: queue_bytes_max and request_bytes_max must be at least 1");
  }
  if (options.request_bytes_max > RecorderOptions::request_bytes_limit) {
    throw std::invalid_argument("hawser: RecorderOptions::request_bytes_max (" +
                                std::to_string(options.request_bytes_max) + ") exceeds " +
                                std::to_string(RecorderOptions::request_bytes_limit) + ": lower it");
  }
  state_ = std::make_shared<State>(std::move(options));
}

bool Recorder::Calls::skips(MetadataView) const noexcept { return !recorder->active.load(std::memory_order_relaxed); }

Task<Result<void>> Recorder::Calls::operator()(IncomingCall& call, Next next) const {
  if (!recorder->active.load(std::memory_order_relaxed)) [[likely]]
    return next();
  // Routes have method and path of HTTP as their name.
  if (call.method().find(' ') != std::string_view::npos) return next();
  if ((observe::quick_random() >> 32) >= recorder->threshold.load(std::memory_order_relaxed)) return next();
  return recorded(recorder, call, std::move(next));
}

Result<Recorder::Part> Recorder::take(std::string_view recording, double ratio, bool last) const {
  if (recording.empty() || recording.size() > name_bytes_max) {
    return fail(ErrorCode::invalid_argument, "the name of a recording has 1 to " + std::to_string(name_bytes_max) +
                                                 " bytes; this one has " + std::to_string(recording.size()));
  }
  if (!(ratio >= 0 && ratio <= 1)) {
    return fail(ErrorCode::invalid_argument, "the part of the calls to be recorded is from 0 to 1");
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
  state.lease_end = last ? now : now + lease;
  state.threshold.store(static_cast<std::uint64_t>(ratio * 0x1p32), std::memory_order_relaxed);
  state.active.store(true, std::memory_order_relaxed);
  Part part = std::move(state.waiting);
  state.waiting = {.recorded = part.recorded, .dropped = part.dropped, .skipped = part.skipped};
  return part;
}

}  // namespace hawser
