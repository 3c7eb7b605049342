#include "rpc/session/remote_access.h"

#include <algorithm>
#include <span>

#include "base/decimal_text.h"

namespace hawser::detail {

using wire::MemoryAction;

std::string mistake(const RemoteRequest& request) {
  const RemoteRegion& region = request.region;
  const auto within = [&](std::uint64_t offset, std::uint64_t bytes) {
    return offset <= UINT64_MAX - request.base && offset + request.base <= region.bytes &&
           bytes <= region.bytes - (offset + request.base);
  };
  const auto outside = [&](std::uint64_t offset, std::uint64_t bytes) {
    if (within(offset, bytes)) return std::string();
    const bool overflows = offset > UINT64_MAX - request.base;
    const std::uint64_t first = offset + request.base;
    return "the range of " + count_text(bytes, "byte") + " at " +
           (overflows ? "an offset beyond 2^64" : std::to_string(first)) + " is not within the region's " +
           std::to_string(region.bytes);
  };
  const bool reads = request.action != MemoryAction::write;
  const bool writes = request.action != MemoryAction::read;
  std::string found;
  if (request.atomic()) {
    found = outside(request.operands.offset, sizeof(std::uint64_t));
  } else if (request.batch == nullptr) {
    found = outside(request.single.offset, request.single.bytes);
  } else {
    const std::span<const TransferBatch::Run> runs = request.batch->runs();
    const auto wrong = std::find_if(runs.begin(), runs.end(),
                                    [&](const TransferBatch::Run& run) { return !within(run.offset, run.bytes); });
    if (wrong != runs.end()) found = outside(wrong->offset, wrong->bytes);
  }
  if (!found.empty()) return found;
  if (writes && !region.writable) return "the region was not exposed to be written";
  if (reads && !region.readable) return "the region was not exposed to be read";
  return {};
}

// ---- RemoteAccess ----

void RemoteAccess::watch(const RemoteOptions& options) {
  if (ended()) return;
  if (const Time when = deadline(options); when != Time::max()) deadline_.start(loop_, when);
  if (options.token != nullptr && options.token->stop_possible()) stop_.emplace(*options.token, Stopper{this});
}

Time RemoteAccess::deadline(const RemoteOptions& options) const noexcept {
  // The limit is far enough from the end of time that adding it to a clock is safe.
  constexpr Duration timeout_max = std::chrono::hours(24 * 365 * 10);
  return options.timeout <= timeout_max ? loop_.after(options.timeout) : Time::max();
}

void RemoteAccess::set_posted() {
  posted_ = true;
  changed_.notify_all();
}

void RemoteAccess::set_done(const std::optional<Error>& error) {
  if (error) {
    outcome_.emplace(fail(*error));
  } else {
    outcome_.emplace();
  }
  deadline_.stop();
  stop_.reset();  // The loop may end before the access is destroyed.
  changed_.notify_all();
}

void RemoteAccess::give_up(ErrorCode code, const char* text) {
  if (ended()) return;
  withdraw();
  set_done(Error::of_call(code, text));
}

void RemoteAccess::on_deadline() noexcept {
  give_up(ErrorCode::deadline_exceeded,
          "the peer's memory was not reached within the timeout; a write may have been, or may still be, done");
}

// Runs on the thread that requests the stop. The callback is removed before the access is destroyed, so the access
// exists; its owner may be about to release it.
void RemoteAccess::Stopper::operator()() const noexcept {
  access->loop_.post([weak = access->weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->give_up(ErrorCode::cancelled, "the access was cancelled; a write may have been, or may still be, done");
    }
  });
}

// ---- FrameAccess ----

Result<void> FrameAccess::start(MemoryFrames& frames, const RemoteRequest& request) {
  action = request.action;
  priority = request.priority;
  MemoryOperation::deadline = RemoteAccess::deadline(request.options);
  wants_crc = request.options.checksum && action == MemoryAction::read;
  region = {request.region.owner, request.region.slot, request.region.generation, request.region.capability};
  base = request.base;
  operands = request.operands;
  single_ = request.single;
  if (request.batch != nullptr) {
    runs = request.batch->runs();
    bytes = request.batch->bytes();
  } else if (single_.bytes != 0) {
    runs = {&single_, 1};
    bytes = single_.bytes;
  }
  frames_ = &frames;
  if (auto started = frames.start(*this); !started) {
    frames_ = nullptr;
    return started;
  }
  return {};
}

void FrameAccess::on_done(const std::optional<Error>& error) {
  frames_ = nullptr;
  set_done(error);
}

void FrameAccess::withdraw() noexcept {
  if (frames_ != nullptr) std::exchange(frames_, nullptr)->abandon(*this);
}

// ---- DeviceAccess ----

Result<void> DeviceAccess::start(transport::OneSidedMemory& remote, const RemoteRegion::Place& place,
                                 const RemoteRequest& request) {
  single_ = request.single;
  priority = request.priority;
  RemoteOperation::deadline = RemoteAccess::deadline(request.options);
  kind = request.action == MemoryAction::write ? Kind::write : Kind::read;
  runs = request.batch != nullptr ? request.batch->runs() : std::span<const TransferBatch::Run>(&single_, 1);
  domain = place.domain;
  address = place.address + request.base;
  key = place.key;
  local_use = request.local_use;
  remote_ = &remote;
  if (auto started = remote.start(*this); !started) {
    remote_ = nullptr;
    return started;
  }
  return {};
}

void DeviceAccess::on_done(const std::optional<Error>& error) {
  remote_ = nullptr;
  set_done(error);
}

void DeviceAccess::withdraw() noexcept {
  if (remote_ != nullptr) std::exchange(remote_, nullptr)->abandon(*this);
}

}  // namespace hawser::detail
