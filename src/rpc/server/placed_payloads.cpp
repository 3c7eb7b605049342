#include "rpc/server/placed_payloads.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/decimal_text.h"
#include "hawser/detail/send_reply.h"

namespace hawser::rpc {

using transport::ReceiveBuffer;

PlacedPayloads::Placed PlacedPayloads::ask(const ReceiveInto& into, const IncomingPayload& payload) {
  Placed placed;
  try {
    placed.memory = into(payload);
  } catch (...) {
    placed.refusal = "HandlerOptions::receive_into threw an exception";
    placed.thrown = detail::exception_text();
    return placed;
  }
  if (!placed.memory.empty() && placed.memory.size() < payload.bytes) {
    placed.refusal = "HandlerOptions::receive_into gave " + count_text(placed.memory.size(), "byte") +
                     " for a payload of " + count_text(payload.bytes, "byte") + ": send less";
    placed.memory = {};
  }
  return placed;
}

ReceiveBuffer PlacedPayloads::select(std::uint32_t call, const ReceiveInto& into, const IncomingPayload& payload,
                                     detail::ReceiveAccount* account) {
  arriving_.push_back({call, ask(into, payload), {}});
  Placed& placed = arriving_.back().placed;
  if (!placed.refusal.empty()) return {ReceiveBuffer::Kind::discard, {}};
  if (placed.memory.empty()) return {};
  if (account != nullptr && !arriving_.back().charge.add(*account, payload.bytes)) {
    placed.memory = {};
    return {ReceiveBuffer::Kind::discard, {}};
  }
  return {ReceiveBuffer::Kind::given, {placed.memory.mutable_data(), payload.bytes}};
}

std::optional<PlacedPayloads::Placed> PlacedPayloads::take(std::uint32_t call) noexcept {
  const auto found =
      std::find_if(arriving_.begin(), arriving_.end(), [&](const Arriving& one) { return one.call == call; });
  if (found == arriving_.end()) return std::nullopt;
  Placed placed = std::move(found->placed);
  arriving_.erase(found);
  return placed;
}

PlacedPayloads::Placed PlacedPayloads::copy(const ReceiveInto& into, const IncomingPayload& payload, Bytes arrived) {
  Placed placed = ask(into, payload);
  if (!placed.memory.empty()) std::memcpy(placed.memory.mutable_data(), arrived.data(), arrived.size());
  return placed;
}

}  // namespace hawser::rpc
