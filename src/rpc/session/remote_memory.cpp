#include "hawser/transport/remote_memory.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "exec/condition.h"
#include "hawser/context.h"
#include "hawser/detail/context_access.h"
#include "hawser/rdma.h"
#include "rpc/client/client_state.h"

namespace hawser {

// One access in progress. Destroying the object abandons the access.
class detail::RemoteAccess final : public transport::RemoteOperation, Timer {
 public:
  explicit RemoteAccess(Loop& loop) noexcept : Timer(&RemoteAccess::on_deadline), loop_(loop), changed_(loop) {}
  ~RemoteAccess() {
    if (remote_ != nullptr) remote_->abandon(*this);
  }

  Result<void> start(transport::RemoteMemory& remote, Duration timeout) {
    if (auto started = remote.start(*this); !started) return started;
    if (outcome_) return {};
    remote_ = &remote;
    if (timeout != forever) Timer::start(loop_, loop_.after(timeout));
    return {};
  }
  bool ended() const noexcept { return outcome_.has_value(); }
  bool posted() const noexcept { return posted_ || ended(); }
  const Result<void>& outcome() const noexcept { return *outcome_; }
  exec::Condition::Waiter changed() noexcept { return changed_.wait(); }

  // The client's connection on which the access was begun.
  const CallChannel* channel = nullptr;

 private:
  void on_posted() override {
    posted_ = true;
    changed_.notify_all();
  }
  void on_done(const std::optional<Error>& error) override {
    remote_ = nullptr;
    if (error) {
      outcome_.emplace(std::unexpected(*error));
    } else {
      outcome_.emplace();
    }
    Timer::stop();
    changed_.notify_all();
  }
  static void on_deadline(Timer& timer) noexcept {
    RemoteAccess& self = static_cast<RemoteAccess&>(timer);
    if (self.remote_ != nullptr) self.remote_->abandon(self);
    self.on_done(
        Error{ErrorCode::deadline_exceeded, ErrorScope::call, Initiator::local, 0,
              "the peer's memory was not reached within the timeout; a write may have been, or may still be, done"});
  }

  Loop& loop_;
  exec::Condition changed_;
  transport::RemoteMemory* remote_ = nullptr;  // Non-null exactly while the transport knows this operation.
  std::optional<Result<void>> outcome_;
  bool posted_ = false;
};

RemoteMemory::RemoteMemory(const Context& context) noexcept
    : reply_sink_(&detail::ContextAccess::reply_sink(context)) {}

Result<RemoteMemory::Access> RemoteMemory::begin(bool writes, const RemoteRegion& region, std::uint64_t offset,
                                                 MutableBytes memory, const RemoteOptions& options) {
  if (offset > region.bytes || memory.size() > region.bytes - offset) {
    return fail(ErrorCode::invalid_argument, std::to_string(memory.size()) + " bytes at " + std::to_string(offset) +
                                                 " are not within the region's " + std::to_string(region.bytes));
  }
  if (!(writes ? region.writable : region.readable)) {
    return fail(ErrorCode::invalid_argument,
                std::string("the region was not exposed to be ") + (writes ? "written" : "read"));
  }
  detail::CallChannel* const channel = client_ == nullptr ? nullptr : client_->link().channel;
  if (client_ != nullptr && channel == nullptr) {
    Error error = client_->link().reason;
    error.code = ErrorCode::not_sent;
    return std::unexpected(std::move(error));
  }
  transport::RemoteMemory* const remote = channel != nullptr ? channel->remote_memory() : reply_sink_->remote_memory();
  if (remote == nullptr) {
    return fail(ErrorCode::unavailable,
                "the peer's memory cannot be reached: the transport of the connection has no one-sided operations (see "
                "Client::fallback_reasons()), or the connection is moving or has ended: use a call instead");
  }
  const auto access =
      std::make_shared<detail::RemoteAccess>(channel != nullptr ? channel->loop() : reply_sink_->loop());
  access->kind = writes ? transport::RemoteOperation::Kind::write : transport::RemoteOperation::Kind::read;
  access->memory = memory.data();
  access->bytes = memory.size();
  access->channel = channel;
  for (const RemoteRegion::Place& place : region.places) {
    if (place.domain == 0 || place.domain != remote->domain()) continue;
    access->domain = place.domain;
    access->address = place.address + offset;
    access->key = place.key;
  }
  if (auto started = access->start(*remote, options.timeout); !started) return std::unexpected(started.error());
  return access;
}

Task<Result<void>> RemoteMemory::finish(Access access) {
  while (!access->ended()) {
    auto changed = access->changed();
    co_await changed;
  }
  co_return access->outcome();
}

Task<Result<void>> RemoteMemory::run(bool writes, RemoteRegion region, std::uint64_t offset, MutableBytes memory,
                                     RemoteOptions options) {
  Result<Access> access = begin(writes, region, offset, memory, options);
  if (!access) co_return std::unexpected(std::move(access.error()));
  auto finishing = finish(std::move(*access));
  co_return co_await std::move(finishing);
}

Task<Result<void>> RemoteMemory::read(RemoteRegion region, std::uint64_t offset, MutableBytes into,
                                      RemoteOptions options) {
  return run(false, region, offset, into, options);
}

Task<Result<void>> RemoteMemory::write(RemoteRegion region, std::uint64_t offset, Bytes from, RemoteOptions options) {
  return run(true, region, offset, {const_cast<std::byte*>(from.data()), from.size()}, options);
}

Task<Result<RemoteMemory::Access>> RemoteMemory::begin_write(RemoteRegion region, std::uint64_t offset, Bytes from,
                                                             RemoteOptions options) {
  Result<Access> begun = begin(true, region, offset, {const_cast<std::byte*>(from.data()), from.size()}, options);
  if (!begun) co_return begun;
  const Access access = *begun;
  while (!access->posted()) {
    auto changed = access->changed();
    co_await changed;
  }
  // After a fail-over, the client sends calls over another connection, which has no order with the one of this access.
  while (!access->ended() && client_->link().channel != access->channel) {
    auto changed = access->changed();
    co_await changed;
  }
  if (access->ended() && !access->outcome()) co_return std::unexpected(access->outcome().error());
  co_return access;
}

}  // namespace hawser
