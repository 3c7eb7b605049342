#include "protocol/grpc/packed_items.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "protocol/grpc/server_session.h"
#include "rpc/port/conversion_memory.h"

namespace hawser::protocol::grpc {
namespace {

// Items that have been delivered hold memory until their handlers have read them.
constexpr Duration memory_patience = std::chrono::seconds(1);
constexpr Duration memory_pause = std::chrono::milliseconds(5);

constexpr std::uint32_t slot_of(std::uint32_t call) noexcept { return call & 0xFFFF; }

}  // namespace

PackedItems::PackedItems(Http2ServerSession& session) noexcept
    : session_(session), unpacker_(session.host().loop, &session) {}

void PackedItems::unpack(std::uint32_t call, PackedMessage packed, detail::ReceiveCharge charge) {
  unpacker_.spawn(unpack_one(call, std::move(packed), std::move(charge)));
}

Task<void> PackedItems::unpack_one(std::uint32_t call, PackedMessage packed, detail::ReceiveCharge charge) {
  try {
    const rpc::ConversionMemory::Holder holder(session_.host().conversion_memory);
    Result<Buffer> message = co_await unpacker_.unpack(std::move(packed), &session_.account(), std::move(charge));
    if (session_.closed()) co_return;
    session_.machine_.unpacked(call, std::move(message));
    if (!session_.closed()) session_.send_soon();
  } catch (const std::exception&) {
    session_.fail_connection();
  }
}

bool PackedItems::waits_for_memory() {
  const Time now = session_.host().loop.now();
  if (!std::exchange(awaits_memory_, true)) {
    began_ = now;
    unpacker_.spawn(release_when_memory_returns());
  }
  const rpc::ConversionMemory& memory = session_.host().conversion_memory;
  return memory.held() || now - std::max(began_, memory.last_end()) < memory_patience;
}

Task<void> PackedItems::release_when_memory_returns() {
  try {
    do {
      if (session_.host().conversion_memory.held()) {
        co_await session_.host().conversion_memory.ended();
      } else {
        co_await session_.host().loop.sleep(memory_pause);
      }
      if (session_.closed()) co_return;
      release();
    } while (!session_.closed() && !waiting().empty());
    awaits_memory_ = false;
  } catch (const std::exception&) {
    session_.fail_connection();
  }
}

// Items go on in turns until one finds no memory.
void PackedItems::release() {
  for (const std::uint32_t call : waiting()) {
    if (session_.machine_.release_packed(call) || session_.closed()) break;
    last_slot_ = slot_of(call);
  }
  if (!session_.closed()) session_.send_soon();
}

std::vector<std::uint32_t> PackedItems::waiting() const {
  std::vector<std::uint32_t> calls;
  session_.machine_.for_each([&](const GrpcStream& stream) {
    if (stream.unpacking == GrpcStream::Unpacking::held && session_.may_unpack(stream)) calls.push_back(stream.call);
  });
  std::ranges::rotate(calls, std::ranges::find_if(calls, [&](std::uint32_t one) { return slot_of(one) > last_slot_; }));
  return calls;
}

}  // namespace hawser::protocol::grpc
