#include "rpc/session/remote_access.h"

#include <algorithm>
#include <string>

namespace hawser::detail {

using wire::MemoryAction;

// ---- RemoteAccess ----

void RemoteAccess::watch(const RemoteOptions& options) {
  if (ended()) return;
  // The limit is far enough from the end of time that adding it to a clock is safe.
  constexpr Duration timeout_max = std::chrono::hours(24 * 365 * 10);
  if (options.timeout <= timeout_max) Timer::start(loop_, loop_.after(options.timeout));
  if (options.token != nullptr && options.token->stop_possible()) stop_.emplace(*options.token, Stopper{this});
}

void RemoteAccess::set_posted() {
  posted_ = true;
  changed_.notify_all();
}

void RemoteAccess::set_done(const std::optional<Error>& error) {
  if (error) {
    outcome_.emplace(std::unexpected(*error));
  } else {
    outcome_.emplace();
  }
  Timer::stop();
  changed_.notify_all();
}

void RemoteAccess::give_up(ErrorCode code, const char* text) {
  if (ended()) return;
  withdraw();
  set_done(Error{code, ErrorScope::call, Initiator::local, 0, text});
}

void RemoteAccess::on_deadline(Timer& timer) noexcept {
  static_cast<RemoteAccess&>(timer).give_up(
      ErrorCode::deadline_exceeded,
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

Result<void> DeviceAccess::start(transport::RemoteMemory& remote, const RemoteRegion::Place& place,
                                 const RemoteRequest& request) {
  remote_ = &remote;
  place_ = place;
  writes_ = request.action == MemoryAction::write;
  base_ = request.base;
  single_ = request.single;
  runs_ = request.batch != nullptr ? request.batch->runs() : std::span<const TransferBatch::Run>(&single_, 1);
  if (runs_.empty()) {
    remote_ = nullptr;
    set_done(std::nullopt);
    return {};
  }
  parts_ = std::vector<Part>(std::min(parts_max, runs_.size()));
  not_posted_ = runs_.size();
  go_on();
  if (!ended() || outcome() || confirmed_ != 0 || next_ != 0) return {};
  return outcome();
}

// Begins as many parts as there are free ones. A part that cannot begin ends the access when the others have ended.
void DeviceAccess::go_on() {
  if (std::exchange(going_on_, true)) return;
  for (std::size_t i = 0; i < parts_.size() && next_ < runs_.size() && !error_; ++i) {
    Part& part = parts_[i];
    if (part.running) continue;
    const TransferBatch::Run& run = runs_[next_];
    part.access = this;
    part.kind = writes_ ? transport::RemoteOperation::Kind::write : transport::RemoteOperation::Kind::read;
    part.memory = run.memory;
    part.bytes = run.bytes;
    part.domain = place_.domain;
    part.address = place_.address + base_ + run.offset;
    part.key = place_.key;
    part.running = true;
    ++running_;
    if (auto started = remote_->start(part); !started) {
      part.running = false;
      --running_;
      // The device has no room: the next completion begins the part.
      if (started.error().code == ErrorCode::overloaded && running_ != 0) break;
      error_ = std::move(started.error());
      break;
    }
    ++next_;
    if (!part.running) i = SIZE_MAX;  // It has ended already, and is free again.
  }
  going_on_ = false;
  end_if_done();
}

void DeviceAccess::part_posted() {
  if (--not_posted_ == 0) set_posted();
}

void DeviceAccess::part_done(Part& part, const std::optional<Error>& error) {
  part.running = false;
  --running_;
  if (error) {
    if (!error_) error_ = error;
  } else {
    confirmed_ += part.bytes;
  }
  if (!going_on_) go_on();
}

void DeviceAccess::end_if_done() {
  if (ended() || running_ != 0 || (!error_ && next_ < runs_.size())) return;
  remote_ = nullptr;
  if (error_ && confirmed_ != 0) {
    error_->text += "; " + std::to_string(confirmed_) + " bytes of the batch had been confirmed";
  }
  set_done(error_);
}

void DeviceAccess::withdraw() noexcept {
  if (remote_ == nullptr) return;
  for (Part& part : parts_) {
    if (std::exchange(part.running, false)) remote_->abandon(part);
  }
  remote_ = nullptr;
}

}  // namespace hawser::detail
