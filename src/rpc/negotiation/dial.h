#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hawser/client.h"
#include "hawser/transport/connection.h"
#include "rpc/negotiation/attached_transports.h"
#include "transport/network.h"
#include "wire/hello.h"

namespace hawser::rpc {

// A connection as both hellos agreed on it.
struct Dialed {
  std::unique_ptr<transport::Connection> connection;
  wire::Hello hello;      // The server's first.
  std::string transport;  // Beside the stream; empty for the stream itself.
  // Of that transport: this side's end for the stream's address here, and the server's parameters.
  std::shared_ptr<transport::TransportWorker> worker;
  std::string local;
  std::vector<std::byte> parameters;
  std::vector<TransportFallback> fallback_reasons;  // Of those that this client has enabled.
};

// Connects and agrees on what carries the messages. `avoided` are transports that are not offered, with the reasons.
Task<Result<Dialed>> dial(Loop& loop, transport::Network& network, const std::string& address,
                          const ClientOptions& options, const AttachedTransports& transports,
                          std::vector<TransportFallback> avoided, Time deadline);

}  // namespace hawser::rpc
