#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hawser/detail/receive_account.h"
#include "hawser/handler_options.h"
#include "hawser/transport/connection.h"

namespace hawser::rpc {

// The memory of the application into which the payloads of one connection's requests are received
// (HandlerOptions::receive_into). Loop's thread only.
class PlacedPayloads {
 public:
  // Asks `into` for the memory of the request `call`, whose payload is about to arrive. Returns what the connection
  // does with the payload. Memory of the application is charged to `account` until take() or clear(); it is null if
  // somebody else charges the payload.
  transport::ReceiveBuffer select(std::uint32_t call, const ReceiveInto& into, const IncomingPayload& payload,
                                  detail::ReceiveAccount* account);
  // Removes and returns what select() recorded for `call`. Nothing if select() was not called for it. An empty Buffer
  // if the application selected memory of the library.
  struct Placed {
    Buffer memory;
    std::string refusal;  // Why the call is refused; empty if it is not.
    std::string thrown;   // Text of the exception that is the reason of the refusal.
  };
  std::optional<Placed> take(std::uint32_t call) noexcept;
  // Asks `into` for memory, and copies a payload there that has arrived already.
  static Placed copy(const ReceiveInto& into, const IncomingPayload& payload, Bytes arrived);
  bool empty() const noexcept { return arriving_.empty(); }
  // The connection does not write to the memory any more.
  void clear() noexcept { arriving_.clear(); }

 private:
  struct Arriving {
    std::uint32_t call;
    Placed placed;
    detail::ReceiveCharge charge;
  };
  static Placed ask(const ReceiveInto& into, const IncomingPayload& payload);

  std::vector<Arriving> arriving_;  // One for each payload that the connection receives at the same time.
};

}  // namespace hawser::rpc
