#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/context.h"
#include "hawser/detail/stream_access.h"
#include "hawser/error.h"
#include "hawser/protocols.h"
#include "hawser/stream.h"
#include "hawser/time.h"

// gRPC over HTTP/2, in plain text ("prior knowledge") or with TLS (ServerOptions::security). Link hawser::grpc.
// docs/protocols/grpc.md states what is supported.
//
//   server.add_service(&shop);
//   server.enable(hawser::grpc());
namespace hawser {

enum class GrpcCompression : std::uint8_t { none, gzip, zstd };

// Limits of one server's connections that speak gRPC. ServerOptions has the limits that all protocols share.
struct GrpcOptions {
  // ---- Bounds of calls and messages
  // Limit of one received message in bytes, after decompression. A longer one fails its call with RESOURCE_EXHAUSTED.
  std::size_t message_bytes_max = std::size_t{4} << 20;
  // Limit of the header list of a request as HTTP/2 counts it: names, values and 32 bytes for each field. A list above
  // it fails the call. A list of more than 256 KiB, or a field of more than 64 KiB, ends the connection.
  std::size_t metadata_bytes_max = std::size_t{16} << 10;
  // Calls of one connection that have not ended. At most ServerOptions::calls_per_connection_max.
  std::size_t calls_max = 1024;
  // Bytes that a client may send on one stream, and on one connection, before the server has taken them.
  std::uint32_t stream_window_bytes = 512 * 1024;
  std::uint32_t connection_window_bytes = 4 * 1024 * 1024;

  // ---- Compression
  // Replies of at least compression_bytes_min bytes are compressed, if the client accepts it. Compressed requests are
  // accepted in any case.
  GrpcCompression compression = GrpcCompression::none;
  std::size_t compression_bytes_min = 1024;

  // ---- Clients that load the server and ask for nothing, or do not read
  // A client that sends PINGs sooner than this after one another, while it is sent nothing, gets GOAWAY with
  // "too_many_pings" at the third of them. Zero: not checked, and idle_frames_max bounds them: clients of HTTP/2 test a
  // connection with a slow response by a PING each second.
  Duration ping_interval_min = Duration::zero();
  // Frames that carry nothing of use (PING, SETTINGS, RST_STREAM, WINDOW_UPDATE, PRIORITY, empty DATA): the number that
  // a client may send at once, and per second. Frames that answer those of the server do not count.
  std::size_t idle_frames_max = 2000;
  std::size_t idle_frames_per_second = 500;

  // The time in which a client must take 16 KiB of the messages that wait for it on a stream, or all of them if that is
  // less. The stream of a client that takes less is reset with CANCEL, and its handler is cancelled. A client takes
  // nothing while the window of the stream or of the connection is closed. Checked in intervals, so that it may take up
  // to twice as long. The client's application may pause for this time. `forever`: not limited. At least 1 ms.
  Duration write_timeout = std::chrono::minutes(10);

  // ---- The age of connections
  // A connection is asked to end after this time, plus or minus a tenth, so that clients spread over the servers again.
  // Calls may finish within the grace. bound_connection_age() of hawser/connection_age.h does so for all protocols; the
  // earlier one of both counts.
  Duration connection_age_max = forever;
  Duration connection_age_grace = forever;
};

// For Server::enable(). Throws std::invalid_argument if a limit is 0 or too large.
ProtocolSpec grpc(GrpcOptions options = {});

// An error that a handler returns, and that a caller over gRPC receives as this status, from 1 (CANCELLED) to 16
// (UNAUTHENTICATED). Callers of other protocols receive ErrorCode::application with that code.
inline Error grpc_error(int status, std::string text) { return Error::application(status, std::move(text)); }

// Adds metadata for a caller over gRPC: at the beginning of the response, or together with the status, also if the call
// fails. Names consist of 0-9, a-z, '_', '-' and '.'; values of names that end in "-bin" are any bytes, others are
// printable ASCII. Context::add_metadata() sends metadata with the status of a call that succeeds. False if the caller
// does not speak gRPC, or for initial metadata after the first message. Called on the loop.
bool add_grpc_initial_metadata(Context& context, std::string name, std::string value);
bool add_grpc_trailing_metadata(Context& context, std::string name, std::string value);
// Sends details beside the status of a call that fails: grpc-status-details-bin, by convention a serialised
// google.rpc.Status. A caller that uses Hawser finds them in CallOutcome::details. False if the caller does not
// speak gRPC. Called on the loop.
bool set_grpc_status_details(Context& context, std::string details);
// Asks the caller to wait for `pause` before it makes the call again, rounded down to milliseconds; negative: not to
// make it again. False if the caller does not speak gRPC. Called on the loop.
bool set_grpc_retry_pushback(Context& context, Duration pause);
// Chooses whether this reply, or the next messages of the stream, are compressed. False if the caller does not accept
// that compression, or if the first message has been sent.
bool set_grpc_compression(Context& context, GrpcCompression compression);
// True if the request of a unary or server-streaming method arrived compressed. For a method that reads a stream: true
// if the item that it has read last did. False for callers of other protocols. Called on the loop.
bool is_grpc_request_compressed(Context& context);

namespace detail {
bool choose_grpc_compression(StreamCore* core, GrpcCompression compression);
}  // namespace detail

// Chooses whether the next items that `items` writes are compressed, for handlers and for clients. Items below
// compression_bytes_min stay as they are. A client can choose what its GrpcClientOptions::compression names, and
// `none`. False if the other side does not accept that compression, if the call has ended, or if it is not gRPC. Called
// on the loop, and not while a write() is in progress.
template <class T>
bool set_grpc_compression(const Writer<T>& items, GrpcCompression compression) {
  return detail::choose_grpc_compression(detail::StreamAccess::core(items).get(), compression);
}
// True if the item that `items` returned last arrived compressed, for handlers and for clients. Called on the loop.
template <class T>
bool is_grpc_item_compressed(const Reader<T>& items) {
  const auto& core = detail::StreamAccess::core(items);
  return core != nullptr && core->taken_compressed();
}

}  // namespace hawser
