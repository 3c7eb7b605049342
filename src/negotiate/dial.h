#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hawser/client.h"
#include "hawser/transport/connection.h"
#include "negotiate/attached_transports.h"
#include "negotiate/settle.h"
#include "transport/network.h"
#include "transport/stream_security.h"

namespace hawser::negotiate {

// A connection as both sides agreed on it.
struct Dialed {
  std::unique_ptr<transport::Connection> connection;
  Agreement agreed;
  std::string transport;  // The transport beside the stream; empty for the stream itself.
  // For that transport: the worker, the stream's local address and the server's parameters.
  std::shared_ptr<transport::TransportWorker> worker;
  std::string local;
  std::vector<std::byte> parameters;
  std::unique_ptr<transport::PathProof> proof;      // Over a protected stream.
  std::vector<TransportFallback> fallback_reasons;  // Why transports that this client has enabled are not used.
};

// Connects to `address`. With `security`, the stream is protected, and the server has proved who it is. See
// ClientSecurity::protect() for `protocol`.
Task<Result<std::unique_ptr<transport::Stream>>> connect_stream(Loop& loop, transport::Network& network,
                                                                std::string address,
                                                                std::shared_ptr<transport::ClientSecurity> security,
                                                                std::string_view protocol, Time deadline);

// Opens the agreed connection beside `stream`. With a cipher, its messages are signed or sealed.
std::unique_ptr<transport::Connection> open_path(transport::PendingConnection& pending,
                                                 std::unique_ptr<transport::Stream> stream,
                                                 std::unique_ptr<transport::PathCipher> cipher);

// Connects and negotiates what carries the messages. `avoided` are transports that are not offered, with the reasons.
Task<Result<Dialed>> dial(Loop& loop, transport::Network& network, const std::string& address,
                          const ClientOptions& options, const AttachedTransports& transports,
                          std::vector<TransportFallback> avoided, Time deadline);

}  // namespace hawser::negotiate
