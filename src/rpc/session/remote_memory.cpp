#include "hawser/transport/remote_memory.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/try.h"
#include "hawser/context.h"
#include "hawser/detail/context_access.h"
#include "hawser/memory.h"
#include "rpc/client/client_access.h"
#include "rpc/client/client_state.h"
#include "rpc/session/remote_access.h"

namespace hawser {

using detail::RemoteRequest;
using wire::MemoryAction;

RemoteMemory::RemoteMemory(const Context& context, TransferPriority priority) noexcept
    : reply_sink_(&detail::ContextAccess::reply_sink(context).origin()), priority_(priority) {}

RemoteCapabilities RemoteMemory::capabilities() const {
  detail::CallChannel* const channel = client_ == nullptr ? nullptr : detail::ClientAccess::connection(*client_);
  if (client_ != nullptr && channel == nullptr) return {};
  const bool device = (channel != nullptr ? channel->remote_memory() : reply_sink_->remote_memory()) != nullptr;
  const bool frames = (channel != nullptr ? channel->memory_frames() : reply_sink_->memory_frames()) != nullptr;
  return {.reachable = device || frames,
          .one_sided = device,
          .one_sided_atomics = false,
          .operations_max = frames ? detail::MemoryFrames::operations_max : 0,
          .window_bytes = frames ? detail::MemoryFrames::window_bytes : 0};
}

Result<RemoteMemory::Access> RemoteMemory::begin(RemoteRequest& request) {
  request.priority = priority_;
  if (std::string wrong = detail::mistake(request); !wrong.empty()) {
    return fail(ErrorCode::invalid_argument, std::move(wrong));
  }
  const RemoteOptions& options = request.options;
  if (options.token != nullptr && options.token->stop_requested()) {
    return fail(ErrorCode::cancelled, "the access was cancelled before it began");
  }
  detail::CallChannel* const channel = client_ == nullptr ? nullptr : detail::ClientAccess::connection(*client_);
  if (client_ != nullptr && channel == nullptr) {
    Error error = client_->link().reason;
    error.code = ErrorCode::not_sent;
    return fail(std::move(error));
  }
  Loop& loop = channel != nullptr ? channel->loop() : reply_sink_->loop();
  if (!request.atomic() && !options.checksum) {
    transport::OneSidedMemory* const device =
        channel != nullptr ? channel->remote_memory() : reply_sink_->remote_memory();
    for (const RemoteRegion::Place& place : request.region.places) {
      if (device == nullptr || place.domain == 0 || place.domain != device->domain()) continue;
      const auto access = std::make_shared<detail::DeviceAccess>(loop);
      access->channel = channel;
      TRY(access->start(*device, place, request));
      access->watch(options);
      return access;
    }
  }
  detail::MemoryFrames* const frames = channel != nullptr ? channel->memory_frames() : reply_sink_->memory_frames();
  if (frames == nullptr) {
    return fail(ErrorCode::unavailable,
                "the peer's memory cannot be reached: the peer is of a version or a protocol without access to memory, "
                "or the connection is moving or has ended: use a call instead");
  }
  const auto access = std::make_shared<detail::FrameAccess>(loop);
  access->channel = channel;
  TRY(access->start(*frames, request));
  access->watch(options);
  return access;
}

Task<Result<void>> RemoteMemory::finish(Access access) {
  while (!access->ended()) {
    co_await access->changed();
  }
  co_return access->outcome();
}

Task<Result<void>> RemoteMemory::run(RemoteMemory self, RemoteRequest request) {
  CO_TRY(Access&& access, self.begin(request));
  co_return co_await finish(std::move(access));
}

Task<Result<std::uint64_t>> RemoteMemory::run_atomic(RemoteMemory self, RemoteRequest request) {
  CO_TRY(Access&& begun, self.begin(request));
  const Access access = begun;
  CO_TRY(co_await finish(access));
  co_return access->previous();
}

namespace {

TransferBatch::Run run_of(Bytes memory, std::uint64_t offset) noexcept {
  return {const_cast<std::byte*>(memory.data()), offset, memory.size()};
}

}  // namespace

Task<Result<void>> RemoteMemory::read(RemoteRegion region, std::uint64_t offset, MutableBytes into,
                                      RemoteOptions options) {
  return run(*this,
             {.action = MemoryAction::read, .region = region, .single = run_of(into, offset), .options = options});
}

Task<Result<void>> RemoteMemory::write(RemoteRegion region, std::uint64_t offset, Bytes from, RemoteOptions options) {
  return run(*this,
             {.action = MemoryAction::write, .region = region, .single = run_of(from, offset), .options = options});
}

Task<Result<void>> RemoteMemory::read(RemoteRegion region, const TransferBatch& batch, RemoteOptions options,
                                      std::uint64_t base) {
  return run(*this,
             {.action = MemoryAction::read, .region = region, .batch = &batch, .base = base, .options = options});
}

Task<Result<void>> RemoteMemory::write(RemoteRegion region, const TransferBatch& batch, RemoteOptions options,
                                       std::uint64_t base) {
  return run(*this,
             {.action = MemoryAction::write, .region = region, .batch = &batch, .base = base, .options = options});
}

Task<Result<std::uint64_t>> RemoteMemory::compare_and_swap(RemoteRegion region, std::uint64_t offset,
                                                           std::uint64_t expected, std::uint64_t desired,
                                                           RemoteOptions options) {
  return run_atomic(*this, {.action = MemoryAction::compare_and_swap,
                            .region = region,
                            .operands = {.offset = offset, .operand = desired, .expected = expected},
                            .options = options});
}

Task<Result<std::uint64_t>> RemoteMemory::fetch_add(RemoteRegion region, std::uint64_t offset, std::uint64_t added,
                                                    RemoteOptions options) {
  return run_atomic(*this, {.action = MemoryAction::fetch_add,
                            .region = region,
                            .operands = {.offset = offset, .operand = added},
                            .options = options});
}

Task<Result<RemoteMemory::Access>> RemoteMemory::begin_write(RemoteRegion region, std::uint64_t offset, Bytes from,
                                                             RemoteOptions options) {
  return begin_ordered(
      *this, {.action = MemoryAction::write, .region = region, .single = run_of(from, offset), .options = options});
}

Task<Result<RemoteMemory::Access>> RemoteMemory::begin_write(RemoteRegion region, const TransferBatch& batch,
                                                             RemoteOptions options) {
  return begin_ordered(*this, {.action = MemoryAction::write, .region = region, .batch = &batch, .options = options});
}

Task<Result<RemoteMemory::Access>> RemoteMemory::begin_ordered(RemoteMemory self, RemoteRequest request) {
  CO_TRY(Access&& begun, self.begin(request));
  const Access access = begun;
  // After a fail-over, the client sends calls over another connection, which has no order with the one of this access.
  while (!access->ended() && !(access->ordered() && access->posted() &&
                               detail::ClientAccess::connection(*self.client_) == access->channel)) {
    co_await access->changed();
  }
  if (access->ended() && !access->outcome()) co_return fail(access->outcome().error());
  co_return access;
}

}  // namespace hawser
