#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/client.h"
#include "hawser/codec/decoder.h"
#include "hawser/error.h"
#include "hawser/grpc.h"
#include "hawser/loop.h"
#include "hawser/time.h"

namespace hawser {

struct GrpcClientOptions {
  // ---- Times
  Duration connect_timeout = std::chrono::seconds(5);
  Duration call_timeout = std::chrono::seconds(30);  // Default of CallOptions::timeout; `forever`: none.

  // ---- Bounds: a call that exceeds one fails with an error that names the bound
  std::size_t calls_in_flight_max = 4096;                  // Calls above the server's own limit wait in a queue.
  std::size_t message_bytes_max = std::size_t{4} << 20;    // One received message, after decompression.
  std::size_t metadata_bytes_max = std::size_t{16} << 10;  // One received header list, as HTTP/2 counts it.
  // Requests that are not sent yet. Beside them, four times as much may wait in streams whose server does not read.
  std::size_t send_backlog_bytes_max = std::size_t{64} << 20;
  std::uint32_t stream_window_bytes = 512 * 1024;  // Bytes of a stream, and of the connection, that the server may send
  std::uint32_t connection_window_bytes = 4 * 1024 * 1024;  // before they have been taken.

  // ---- How messages are sent and decoded
  // Messages of at least compression_bytes_min bytes are compressed. Compressed replies are accepted in any case.
  GrpcCompression compression = GrpcCompression::none;
  std::size_t compression_bytes_min = 1024;
  codec::DecodeLimits decode_limits = {};

  // ---- The connection
  // A PING is sent when calls are in flight and nothing has arrived for this time; after the same time again the
  // connection ends. Servers of gRPC refuse PINGs that come more often than every five minutes, unless they are set up
  // for it. `forever`: none.
  Duration ping_interval = forever;
  std::string authority = {};  // The field :authority. Empty: the address.
  // Protects the connection: a TlsClient (hawser/tls.h). Null: plain text.
  std::shared_ptr<transport::ClientSecurity> security = {};

  // ---- Around each call
  // Run around each call, as after use(). Made by client_interceptor() (hawser/interceptor.h).
  std::vector<std::shared_ptr<detail::Interceptor<OutgoingCall>>> interceptors = {};
};

// Options of a Client, and of all that contains Clients (ClientPool, BlockingClient, ClusterClient), for servers of
// gRPC. The methods are those of services that are defined in .proto files; generated stubs take the Client. It has no
// ping(). The options that ClientOptions has under the same name may be changed in the result. Throws
// std::invalid_argument if an option is out of its range.
//
// Statuses that a server's handler chooses are ErrorCode::application with the status as application_code, except
// CANCELLED, DEADLINE_EXCEEDED and UNIMPLEMENTED. Initial and trailing metadata of a reply are one list. When a client
// is closed, its calls in flight end with outcome_unknown.
ClientOptions grpc_client(GrpcClientOptions options = {});

// A Client with these options.
class GrpcClient : public Client {
 public:
  explicit GrpcClient(Loop& loop, GrpcClientOptions options = {}) : Client(loop, grpc_client(std::move(options))) {}
};

}  // namespace hawser
