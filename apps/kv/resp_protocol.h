#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hawser/protocols.h"
#include "kv/password_gate.h"
#include "kv/store.h"
#include "protocol/resp/request_parser.h"
#include "rpc/port/port_protocol.h"

namespace hawser::kv {

// Recognises Redis clients, and makes their sessions.
class RespProtocol final : public rpc::PortProtocol {
 public:
  // `store` outlives the server. `gate` is null if clients need no password.
  RespProtocol(Store& store, std::shared_ptr<PasswordGate> gate);

  std::string_view name() const noexcept override { return "resp"; }
  Match match(Bytes first) const noexcept override;
  std::unique_ptr<rpc::PortSession> open(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream,
                                         Bytes first) const override;
  std::string refusal(const Error& why) const override;

 private:
  Store& store_;
  const std::shared_ptr<PasswordGate> gate_;
  protocol::resp::RequestLimits limits_;
};

// For Server::enable().
ProtocolSpec resp_protocol(Store& store, std::shared_ptr<PasswordGate> gate);

}  // namespace hawser::kv
