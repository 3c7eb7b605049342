#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/client.h"
#include "hawser/error.h"
#include "hawser/identity.h"
#include "hawser/protocols.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser {

// The client of a connection of baidu_std, as its first message describes it.
struct BaiduStdLogin {
  std::string credential = {};  // authentication_data; empty if there is none. At most 32 KiB.
  std::string peer = {};        // The client's address, as Context::peer().
  Identity identity = {};       // As the connection proves it: a certificate (TLS), or a process (Unix socket).
};

// Options of the protocol baidu_std, which clients of bRPC speak. The bounds of ServerOptions apply as well.
struct BaiduStdOptions {
  // Verifies a client. Called once on each connection, with authentication_data of its first message (empty if it has
  // none) and the client's address. If it fails, the client is answered ERPCAUTH with the error's text and the
  // connection ends. Called on the loop's thread: it must not block. Empty: every client is accepted.
  std::function<Result<void>(std::string_view credential, std::string_view peer)> verify = {};
  // Returns who the client of a connection is. Called once on each connection, for its first message; what later
  // messages contain is ignored. The identity is that of all calls of the connection: Context::identity() and the
  // conditions of hawser/authorization.h have it. Return login.identity to keep what the connection proves. If the kind
  // of the returned identity is `none` although it has a subject, an issuer, a SPIFFE id or claims, the kind becomes
  // `token`; else the client has proved nothing. After an error, an exception, or authenticate_timeout, the message is
  // answered ERPCAUTH with the error's text, and the connection ends. It runs on the loop of the connection, on several
  // loops at once, and may wait; it is destroyed where it waits if the connection ends. The client's next messages are
  // received when it has returned. Not possible together with `verify`. Empty: clients have the identity that their
  // connections prove.
  //   options.authenticate = [tokens](hawser::BaiduStdLogin login) -> hawser::Task<hawser::Result<hawser::Identity>> {
  //     co_return tokens.verify(login.credential);  // A hawser::JwtVerifier.
  //   };
  std::function<Task<Result<Identity>>(BaiduStdLogin login)> authenticate = {};
  // Time for `authenticate`. More than 0.
  Duration authenticate_timeout = std::chrono::seconds(5);
  // A compressed request is answered with the same compression if the result has at least this many bytes. The default
  // compresses no reply, as servers of bRPC do.
  std::size_t compress_reply_bytes_min = SIZE_MAX;
  // Bytes that a handler may write to a stream before the client has consumed them. At least 1.
  std::uint32_t stream_buffer_bytes = std::uint32_t{2} << 20;
  // Streams that a client may open with one call, for methods of google::protobuf::Service that accept them. At least
  // 1, at most 256. A call with more is answered EREQUEST. An open stream takes about 700 bytes beside its items.
  std::uint32_t streams_per_call_max = 16;
};

// "baidu_std": the protocol of bRPC with its streams, for Server::enable(). It serves the methods whose arguments and
// result are protobuf messages. Throws std::invalid_argument if `authenticate` and `verify` are both set, or if
// authenticate_timeout is not positive. Component hawser::brpc. docs/protocols/baidu_std.md.
ProtocolSpec baidu_std(BaiduStdOptions options = {});

enum class BaiduStdCompression : std::uint8_t { none, snappy, gzip, zlib };

// Options of a client that speaks baidu_std.
struct BaiduStdClientOptions {
  // The options connect_timeout, call_timeout, calls_in_flight_max, message_bytes_max, send_backlog_bytes_max,
  // decode_limits, checksum, runtime, security and interceptors are used. Those that change in the result of
  // baidu_std_client() apply.
  ClientOptions client = {};
  // authentication_data of the first message of each connection. Empty: none.
  std::string credential = {};
  // Requests whose message has at least compress_bytes_min bytes are compressed. Attachments are not.
  BaiduStdCompression compression = BaiduStdCompression::none;
  std::size_t compress_bytes_min = 512;
  // Bytes that a call may write to its stream before the server has consumed them. At least 1.
  std::uint32_t stream_buffer_bytes = std::uint32_t{2} << 20;
  // Bytes of stream items that the connection keeps until they are read, with the memory of their bookkeeping. An item
  // beyond it ends its call with `limit_exceeded`. A server of bRPC keeps its StreamOptions::max_buf_size for each
  // stream outstanding, 2 MiB by default.
  std::size_t stream_receive_bytes_max = std::size_t{64} << 20;
};

// Options of a Client, and of all that contains Clients (ClientPool, BlockingClient, ClusterClient), for servers of
// bRPC and servers of this library that speak baidu_std. A method is named "package.Service/Method", and its argument
// and result are protobuf messages. CallOptions apply: the timeout is sent as timeout_ms, metadata as user_fields, but
// "log-id" as log_id and "x-request-id" as request_id. The protocol has no cancellation: the answer to a cancelled call
// is ignored. It has no ping().
//
// A call with a stream ends when the server closes the stream. Its result is that of the handler, for a server of bRPC
// the response that opened the stream. Writer::end() and finish() then close both directions: read the expected items
// before. A stream that is dropped or cancelled is reset.
ClientOptions baidu_std_client(BaiduStdClientOptions options = {});

// A Client with these options.
class BaiduStdClient : public Client {
 public:
  explicit BaiduStdClient(BaiduStdClientOptions options = {}) : Client(baidu_std_client(std::move(options))) {}
  explicit BaiduStdClient(Loop& loop, BaiduStdClientOptions options = {})
      : Client(loop, baidu_std_client(std::move(options))) {}
};

}  // namespace hawser
