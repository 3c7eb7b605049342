#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/metadata.h"
#include "protocol/grpc/compression.h"
#include "protocol/grpc/header_fields.h"
#include "protocol/grpc/message_reader.h"
#include "protocol/http2/stream.h"

namespace hawser::protocol::grpc {

// One stream of HTTP/2 with a call of gRPC, or at a server with another request.
struct GrpcStream : http2::Http2Stream {
  HeaderFields fields;
  detail::ReceiveCharge fields_charge;  // Server.

  // ---- Receiving ----
  // What happens to messages: the first is kept until the peer's end of the stream, each is delivered, or all are
  // dropped; or the bytes are not messages.
  enum class Take : std::uint8_t { drop, keep_one, deliver, plain };
  Take take = Take::drop;
  MessageReader reader;
  unsigned messages = 0;  // Whole messages so far; counted up to 2 with keep_one.
  // With keep_one; compressed at a server, if it came so. Behind reader.room() free bytes if there is room.
  Bytes message;
  Block* message_block = nullptr;
  Buffer kept;  // Holds `message`; empty while it lies in the memory that is being received.
  detail::ReceiveCharge kept_charge;
  std::size_t held_bytes = 0;  // Credit that the receiver of the items has not given back.
  detail::ReceiveCharge stalled_charge;
  std::string stalled;  // Bytes behind the messages that are held; their window is not returned yet.
  // Whether a compressed message waits in `kept` for GrpcMachine::release_packed(), or is decompressed elsewhere. What
  // follows it waits in `stalled`.
  enum class Unpacking : std::uint8_t { no, held, elsewhere };
  Unpacking unpacking = Unpacking::no;
  bool unpacks() const noexcept { return unpacking != Unpacking::no; }
  bool end_delivered = false;

  // ---- Sending ----
  Encoding send_encoding = Encoding::identity;
  Metadata initial;   // Sent with the response's header block.
  Metadata trailers;  // Sent with the status.
  std::string status;
  std::string status_text;  // Percent-encoded.

  // The stream, which is closed and not busy, will be another one.
  void restart() noexcept;
};

}  // namespace hawser::protocol::grpc
